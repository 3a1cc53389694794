"""The schema of every pipeline configuration: names, types, defaults, ranges, cross-field rules.

`conf/NAME.yaml` holds the values of `python -m pipeline.NAME`; the schema says what may stand
there.
"""

from pipeline.common.schema import StageConfig, check, check_choice, input_path, runtime_option
from pipeline.config.downstream import (
    MINIMAL_PAIRS,
    TASK_KINDS,
    ConvertConfig,
    EmbedConfig,
    EvaluateConfig,
    PredictConfig,
    SubmitConfig,
    TaskConfig,
)
from pipeline.config.preparation import (
    CorpusConfig,
    DownloadConfig,
    DownloadFile,
    FiltersConfig,
    PrepareConfig,
    RunnerConfig,
    TasksConfig,
    VocabConfig,
)
from pipeline.config.run import ExecutorConfig, ReportConfig, RunConfig

__all__ = [
    "MINIMAL_PAIRS",
    "TASK_KINDS",
    "ConvertConfig",
    "CorpusConfig",
    "DownloadConfig",
    "DownloadFile",
    "EmbedConfig",
    "EvaluateConfig",
    "ExecutorConfig",
    "FiltersConfig",
    "PredictConfig",
    "PrepareConfig",
    "ReportConfig",
    "RunConfig",
    "RunnerConfig",
    "StageConfig",
    "SubmitConfig",
    "TaskConfig",
    "TasksConfig",
    "VocabConfig",
    "check",
    "check_choice",
    "input_path",
    "runtime_option",
]
