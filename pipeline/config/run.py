"""The schemas of a whole run: its recipe, where its stages run, and `report`."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from pipeline.common.schema import StageConfig, check, check_choice
from pipeline.config.preparation import CorpusConfig


@dataclass(kw_only=True)
class ReportConfig(StageConfig):
    """`python -m pipeline.report`."""

    # folders of stages; empty: all of the run's
    stages: list[str] = field(default_factory=list, metadata={"role": "input"})


@dataclass(kw_only=True)
class RecipeConfig:
    """A graph of stages: for each name, what its configuration says differently."""

    name: str = MISSING
    stages: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class ExecutorConfig:
    """Where the stages of a run become processes."""

    name: str = "local"
    namespace: str | None = None  # of Kubernetes; null: the pod's own, or the context's
    part_of: str = "bert-pretrain"  # label app.kubernetes.io/part-of of the stages' Jobs
    poll: float = 5.0  # seconds between looks at the Jobs
    patience: float = 600.0  # seconds without an answer of the API server before the driver leaves
    queue: str | None = None  # hand Jobs to this Kueue LocalQueue instead of resuming them
    nodes: int = 1  # of Slurm, for training
    gpus: int = 8  # a node, of Slurm, for training; an evaluation has one; 0: the CPU
    cpus: int = 32  # a node, of Slurm; stages that use one core have one
    parts: int = 4  # jobs that share the evaluations on Slurm
    time: str = "24:00:00"  # limit of a Slurm job; training saves before it and queues again
    account: str | None = None  # of Slurm
    partition: str | None = None  # of Slurm
    qos: str | None = None  # of Slurm
    # more options of sbatch, by kind of stage or `all`: +executor.options.train=['--mem=64G']
    options: dict[str, list[str]] = field(default_factory=dict)
    setup: list[str] = field(default_factory=list)  # shell lines of a Slurm job before its stage
    wait: bool = True  # follow Slurm's jobs to their end; false: submit them and leave
    prometheus_port: int | None = None  # the driver of Kubernetes serves the stages' states here

    def __post_init__(self) -> None:
        """Check the choice and the ranges."""
        check_choice("executor.name", self.name, ("local", "kubernetes", "slurm"))
        check(self.poll > 0, f"executor.poll={self.poll}: above 0 seconds")
        check(self.patience > 0, f"executor.patience={self.patience}: above 0 seconds")
        for key in ("nodes", "cpus", "parts"):
            check(getattr(self, key) >= 1, f"executor.{key}={getattr(self, key)}: at least 1")
        check(self.gpus >= 0, f"executor.gpus={self.gpus}: at least 0")


@dataclass(kw_only=True)
class RunConfig:
    """`python -m pipeline.run`."""

    # folder of the run, also in a store (s3://BUCKET/RUN): every stage has its folder in it
    workdir: str = MISSING
    # folder of this machine for copies of what is in a store; null: in the user's cache folder
    mirror: str | None = None
    corpus: CorpusConfig = MISSING
    recipe: RecipeConfig = MISSING
    # what a stage shall do differently than the recipe says: STAGE.key=value, as train.steps=9000
    stages: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)  # a size of conf/model
    tasks: list[str] = field(default_factory=list)  # of conf/task
    glue: str | None = None  # folder of the official GLUE files, for tasks that are not samples
    seed: int = 0  # of every stage whose own is not set in the recipe
    dry_run: bool = False  # draw the graph, and say what would run and why
    force: list[str] = field(default_factory=list)  # stages to make again (also --force STAGE)
    processes: int | None = None  # of training; null: one a GPU, or one on a CPU
    cores: int | None = None  # to share out among stages; null: all
    executor: ExecutorConfig = MISSING

    def __post_init__(self) -> None:
        """Check the ranges."""
        for key in ("processes", "cores"):
            value = getattr(self, key)
            check(value is None or value >= 1, f"{key}={value}: at least 1")
