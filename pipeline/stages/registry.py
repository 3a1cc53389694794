"""The registry of stages, in the order of the data flow."""

import importlib
from dataclasses import dataclass
from functools import cached_property

from pipeline.config import StageConfig

# Where a stage runs: on one core, on all of a machine (SHARED: one is enough for most of its time, so that others run
# alongside), on all nodes, or as an array of jobs, each of which begins on one core.
ONE, SHARED, ALL, NODES, ARRAY = "one", "shared", "all", "nodes", "array"


@dataclass(frozen=True)
class Stage:
    """A stage type. A graph may have several of one type: `train-512` is a `train`."""

    name: str  # of its folder, and of `conf/NAME.yaml`
    version: int  # raise it when unchanged inputs and settings produce different output
    schema_path: str  # MODULE:CLASS of its configuration, imported lazily
    script: str  # the module or file that runs it
    placement: str = ALL  # what of the machines it uses
    quick: bool = False  # rerun when its version is raised; others are kept, with a note
    progress: str = ""  # the folder in its own that it resumes from; {} is the name of its run

    @cached_property
    def schema(self) -> type[StageConfig]:
        """Import and return the dataclass of its configuration."""
        module, _, name = self.schema_path.partition(":")
        schema: type[StageConfig] = getattr(importlib.import_module(module), name)
        return schema


_ALL = (
    Stage("download", 1, "pipeline.config:DownloadConfig", "pipeline.download", ONE),
    Stage("vocab", 7, "pipeline.config:VocabConfig", "pipeline.vocab", SHARED),
    Stage("prepare", 6, "pipeline.config:PrepareConfig", "pipeline.prepare"),
    Stage("tasks", 3, "pipeline.config:TasksConfig", "pipeline.tasks", ONE),
    Stage("train", 1, "model.config:TrainConfig", "model/train.py", NODES, progress="checkpoints/{}"),
    Stage("convert", 4, "pipeline.config:ConvertConfig", "pipeline.convert", ONE, quick=True),
    Stage("evaluate", 5, "pipeline.config:EvaluateConfig", "pipeline.evaluate", ARRAY, progress="runs"),
    Stage("report", 7, "pipeline.config:ReportConfig", "pipeline.report", ONE, quick=True),
)
STAGES = {stage.name: stage for stage in _ALL}  # of a run

# With stages outside of runs, which have a folder and a manifest of the same form.
KNOWN = STAGES | {
    "pairs": Stage("pairs", 3, "pipeline.config:PairsConfig", "pipeline.pairs", ONE),
    "submit": Stage("submit", 1, "pipeline.config:SubmitConfig", "pipeline.submit"),
}


def placement_of(stage: str) -> str:
    """Return where a recipe's stage, or one of this type, runs."""
    return STAGES[type_of(stage)].placement


def type_of(stage: str) -> str:
    """Return the type of a recipe's stage, such as `train` of `train-512`."""
    return stage.partition("-")[0]
