"""The schema of every pipeline configuration: names, types, defaults, ranges, cross-field rules.

`conf/NAME.yaml` holds the values of `python -m pipeline.NAME`; the schema says what may stand
there.
"""

from pipeline.common.schema import StageConfig, check
from pipeline.config.downstream import (
    MINIMAL_PAIRS,
    RETRIEVAL,
    SIMILARITY,
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
    PairsConfig,
    PrepareConfig,
    RunnerConfig,
    TasksConfig,
    VocabConfig,
)
from pipeline.config.run import ExecutorConfig, ReportConfig, RunConfig
