"""The schemas of a whole run: its recipe, where its stages run, and `report`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.common.schema import Section, StageConfig, TrackerConfig, check, group, input_path, option
from pipeline.config.preparation import CorpusConfig

# A time limit of sbatch, D-H:M:S or H:M:S. It takes a number, or M:S, for minutes, who writes 24 means hours.
TIME = re.compile(r"(?:(\d+)-|(?=\d+:\d+:))(\d+)(?::(\d+))?(?::(\d+))?")


@dataclass(kw_only=True)
class ReportConfig(StageConfig):
    """`python -m pipeline.report`."""

    stages: list[str] = input_path([], "Folders of stages; empty: all of the run.")
    runs: list[str] = option([], "Folders of several runs, to be shown side by side; empty: the run in workdir.")
    tracking: TrackerConfig = group(
        TrackerConfig, "Tracker that gets all finished stages too, next to training.", "runtime"
    )

    def check_rules(self) -> None:
        """Check that the tracker can read the stages, and that several runs have a page of their own."""
        check(
            not self.runs or self.out != f"{self.workdir}/report",
            "is the report of one run; set out=FOLDER for that of several",
            "out",
            self.out,
        )
        check(len({*map(Path, self.runs)}) == len(self.runs), "contains a folder twice", "runs", self.runs)
        check(not self.runs or self.tracking.name != "wandb", "logs one run; set tracking=none", "tracking", "wandb")
        check(
            self.tracking.name != "wandb" or "://" not in self.workdir,
            f"stages in {self.workdir} are not logged; set tracking=none, or a local workdir",
            "tracking",
            "wandb",
        )


@dataclass(kw_only=True)
class ExecutorConfig(Section, key="executor"):
    """Where the stages of a run become processes."""

    _only = dict.fromkeys(("nodes", "gpus", "cpus", "parts", "time", "account", "partition"), ("name", "slurm"))
    _only |= dict.fromkeys(("options", "setup", "wait"), ("name", "slurm"))
    _only |= dict.fromkeys(("namespace", "preflight", "prometheus_port"), ("name", "kubernetes"))

    name: str = option("local", "Executor.", choices=("local", "kubernetes", "slurm", "none"))
    namespace: str | None = option(None, "Kubernetes: the namespace; null: that of the pod or the context.")
    poll: float = option(5.0, "Seconds between queries of the Jobs' states.", above=0)
    preflight: bool = option(False, "Kubernetes: check the nodes of training first, by `model.preflight`.")
    nodes: int = option(1, "Slurm: nodes for training.", at_least=1)
    gpus: int = option(8, "Slurm: GPUs per node for training, 0 for the CPU; an evaluation has one.", at_least=0)
    cpus: int = option(32, "Slurm: cores per node; stages that use one core get one.", at_least=1)
    parts: int = option(4, "Slurm: jobs among which evaluations are divided.", at_least=1)
    time: str = option("24:00:00", "Slurm: time limit of a job; training saves before it and queues again.")
    account: str | None = option(None, "Slurm: the account.")
    partition: str | None = option(None, "Slurm: the partition.")
    options: dict[str, list[str]] = option(
        {}, "Slurm: more options of sbatch, by kind of stage or `all`, as in +executor.options.train=['--mem=64G']."
    )
    setup: list[str] = option([], "Slurm: shell lines that a job runs before its stage.")
    wait: bool = option(True, "Slurm: follow the jobs to their end; false: submit and exit.")
    prometheus_port: int | None = option(
        None, "Kubernetes: port on which the driver serves the stages' states; null: none.", at_least=1, at_most=65535
    )
    prometheus_host: str = option("127.0.0.1", "Address of that port; 0.0.0.0: all.")

    def check_rules(self) -> None:
        """Check the options of sbatch."""
        valid = self.time in ("UNLIMITED", "INFINITE") or TIME.fullmatch(self.time) is not None
        self.require(valid, "is not a time of sbatch; write H:M:S or D-H, such as 12:00:00", "time")
        for kind, words in self.options.items():
            dashed = not words or words[0].startswith("-")
            check(dashed, "is not an option of sbatch; write ['--NAME=VALUE']", f"{self._prefix}options.{kind}", words)

    @property
    def here(self) -> bool:
        """Return whether stages are processes of this machine."""
        return self.name == "local"

    @property
    def pods(self) -> bool:
        """Return whether they are pods, whose driver may not see their volume and restarts by itself."""
        return self.name == "kubernetes"


@dataclass(kw_only=True)
class RunConfig(Section):
    """`python -m pipeline.run`."""

    _only = dict.fromkeys(("estimate_mfu",), ("estimate_gpu",))

    workdir: str = option(
        help="Folder of the run, with one folder per stage; also in a store: s3://BUCKET/RUN, "
        "gs://BUCKET/RUN, abfs://CONTAINER/RUN."
    )
    mirror: str | None = option(
        None, "Local folder for copies of what is in an object store; null: in the user's cache folder."
    )
    corpus: CorpusConfig = option()
    recipe: str = option(help="Name of the recipe.")
    stages: dict[str, Any] = option({}, "Configurations by name of stage; STAGE.KEY=VALUE changes one.")
    hours: float | None = option(
        None,
        "Hours of this machine, of which size, vocabulary, steps and rate are chosen; null: as the recipe says.",
        above=0,
    )
    steps: int | None = option(
        None,
        "Steps of all trainings together, which keep their shares of them, as in a recipe with "
        "three phases; null: as the recipe says.",
        at_least=1,
    )
    model: dict[str, Any] = option({}, "A size of conf/model.")
    tasks: list[str] = option([], "Tasks of conf/task.")
    glue: str | None = option(None, "Folder of the official GLUE files, for tasks that are not samples.")
    seed: int = option(0, "Seed of every stage whose own seed the recipe leaves unset.")
    seeds: list[int] = option(
        [],
        "Seeds of pre-training: train and evaluate once per seed, in folders like train-seed1, and "
        "report mean and deviation. Stages before training are shared.",
    )
    dry_run: bool = option(False, "Print the graph, and what would run and why.")
    estimate_gpu: str | None = option(
        None, "GPU for which the estimate counts the hours of training, as in estimate_gpu=H100."
    )
    estimate_mfu: float = option(
        0.4, "Share of that GPU's peak that training reaches, as `mfu` of metrics.jsonl.", above=0, at_most=1
    )
    force: list[str] = option(
        [],
        "Stages whose output is deleted before the run (also --force STAGE). After an interruption "
        "leave it out, to resume.",
    )
    processes: int | None = option(None, "Training processes; null: as `processes` of the stage.", at_least=1)
    cores: int | None = option(None, "Cores shared by all stages; null: all.", at_least=1)
    executor: ExecutorConfig = group(ExecutorConfig)
