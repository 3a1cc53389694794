"""The schema of every pipeline configuration: names, types, defaults, ranges, cross-field rules.

`conf/NAME.yaml` holds the values of `python -m pipeline.NAME`; the schema says what may stand
there.
"""

from pipeline.config.data import (
    CorpusConfig,
    DownloadConfig,
    DownloadFile,
    FiltersConfig,
    PrepareConfig,
    RunnerConfig,
    TasksConfig,
    VocabConfig,
)
from pipeline.config.fields import StageConfig, check, check_choice, incidental, input_path
from pipeline.config.results import (
    KINDS,
    ConvertConfig,
    EmbedConfig,
    EvaluateConfig,
    PredictConfig,
    SubmitConfig,
    TaskConfig,
)
from pipeline.config.run import ExecutorConfig, RecipeConfig, ReportConfig, RunConfig

__all__ = [
    "KINDS",
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
    "RecipeConfig",
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
    "incidental",
    "input_path",
]
