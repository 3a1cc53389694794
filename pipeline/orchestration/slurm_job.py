"""Run stages within a Slurm job: `python -m pipeline.orchestration.slurm_job STAGE OVERRIDE…`.

It is what a batch script calls, of `executor=slurm` for one stage, of deploy/slurm.sh for all of
them one after another (STAGE is `all`). Each stage is a step: `srun` starts this module again as
each of its tasks, which becomes `pipeline.orchestration.run_stage`.

Of several nodes the most serious exit code counts: what a person must look at outweighs what a
restart repairs. A job that was told to leave, or lost a node, queues again; after STALLED times
without a new checkpoint or result it does not.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipeline.cli import entry_point
from pipeline.common import output
from pipeline.common.atomic import write_text
from pipeline.common.errors import ConfigError, Exit
from pipeline.config import RunConfig
from pipeline.orchestration import graph, run_arguments

MODULE = "pipeline.orchestration.slurm_job"
STALLED = 3  # starts without progress, after which a job does not queue again
KILLED, TERMINATED, HUNG_UP = 137, 143, 129  # 128 and a signal
AGAIN = (Exit.RESTART, TERMINATED, HUNG_UP, Exit.INTERRUPTED, KILLED)
# srun ends with the highest code of its tasks: these are in the order of what counts most. A task
# that is killed itself ends with 137, and srun with 1 where it cannot start one.
STEP_CODES = {
    Exit.RESTART: 101, Exit.INTERRUPTED: 102, HUNG_UP: 103, TERMINATED: 104, KILLED: 105,
    Exit.BUG: 201, Exit.DIVERGED: 202, Exit.USER: 203,
}  # fmt: skip
FINAL = (Exit.BUG, Exit.DIVERGED, Exit.USER)


def to_step(code: int) -> int:
    """Return the code by which a task says how its stage ended; `code` is a process's."""
    if code < 0:
        code = 128 - code
    return STEP_CODES.get(code, STEP_CODES[Exit.BUG] if code < 128 else 105) if code else 0


def from_step(code: int) -> int:
    """Return how a stage ended, from the code of its srun (negative: a signal)."""
    if code < 0:
        code = 128 - code
    for ours, step in STEP_CODES.items():
        if code == step:
            return int(ours)
    return code


def task(stage: str, overrides: list[str]) -> int:
    """Run a stage as one task of a step; the code for srun."""
    environment = os.environ
    index = environment.get("SLURM_ARRAY_TASK_ID") or environment["SLURM_PROCID"]
    environment["JOB_COMPLETION_INDEX"] = index
    environment["GPUS"] = environment.get("SLURM_GPUS_ON_NODE", "0")
    # Slurm signals every process of a step: the stage has it too, and this one waits for its end.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: None)
    words = [sys.executable, "-m", "pipeline.orchestration.run_stage", stage, *overrides]
    code = subprocess.run(words, check=False).returncode
    if code in FINAL and int(environment.get("SLURM_NTASKS", "1")) > 1:
        # The others would wait for this one: they save and leave.
        step = f"{environment['SLURM_JOB_ID']}.{environment['SLURM_STEP_ID']}"
        subprocess.run(["scancel", "--signal=TERM", step], check=False)
    return to_step(code)


def run_step(stage: str, nodes: int, overrides: list[str]) -> int:
    """Run a stage on nodes of this job; how it ended."""
    words = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--kill-on-bad-exit=0"]
    if nodes > 1:
        words.append("--label")
    if os.environ.get("SLURM_CPUS_PER_TASK"):  # a step does not take it from its job
        words.append(f"--cpus-per-task={os.environ['SLURM_CPUS_PER_TASK']}")
    print(f"slurm: stage {stage} on {nodes} of this job's nodes", flush=True)
    code = subprocess.run(
        [*words, sys.executable, "-m", MODULE, "--task", stage, *overrides], check=False
    ).returncode
    return from_step(code)


def environment_of_job() -> dict[str, str]:
    """Return what `run_stage` wants to know of this job."""
    job = os.environ["SLURM_JOB_ID"]
    nodes = os.environ["SLURM_JOB_NUM_NODES"]
    listed = subprocess.run(
        ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return {
        "NODES": nodes,
        "PARTS": os.environ.get("SLURM_ARRAY_TASK_COUNT", nodes),
        "HOSTS": ",".join(listed.stdout.split()),
        # Jobs on one node have a port each, and never take another's store for theirs.
        "PORT": os.environ.get("PORT") or str(20000 + int(job) % 10000),
        "TRAIN_RUN": f"{job}.{os.environ.get('SLURM_RESTART_COUNT', '0')}",
    }


def progress(workdir: Path) -> str:
    """Return a digest of what a run has finished so far: checkpoints, results, stages."""
    found = [*workdir.glob("*/checkpoints/*/step-*"), *workdir.glob("*/*.json")]
    listed = sorted(f"{path} {path.stat().st_mtime_ns}" for path in found if path.exists())
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()


def may_queue_again(workdir: Path, job: str) -> bool:
    """Note how often a job has started, and return whether it got any further of late."""
    path = workdir / "logs" / f".slurm-{job}"
    path.parent.mkdir(parents=True, exist_ok=True)
    before: dict[str, Any] = {"progress": "", "times": 0}
    if path.exists():
        before = json.loads(path.read_text())
    now = progress(workdir)
    times = before["times"] + 1 if before["progress"] == now else 1
    write_text(path, json.dumps({"progress": now, "times": times}))
    return times < STALLED


def drive(stage: str, config: RunConfig, words: list[str]) -> None:
    """Run a stage, or all that have to run, in this job; queue again where that helps.

    Raises:
        ConfigError: this is no Slurm job.
    """
    if "SLURM_JOB_ID" not in os.environ:
        raise ConfigError("environment: SLURM_JOB_ID: start it by sbatch; docs/slurm.md shows how")
    os.environ |= environment_of_job()
    if int(os.environ.get("SLURM_RESTART_COUNT", "0")):
        # What was to be made again was begun anew by the start before: this one goes on with it.
        words = [word for word in words if not word.startswith("force=")]
    stages = [stage]
    if stage == "all":
        nodes = graph.plan(config, run_arguments.overrides_of(words))
        stages = list(dict.fromkeys(node.job for node in nodes if node.reason is not None))
    for each in stages:
        wide = each == "evaluate" or each.startswith("train")
        code = run_step(each, int(os.environ["NODES"]) if wide else 1, words)
        if code:
            finish(each, code, Path(config.workdir))


def finish(stage: str, code: int, workdir: Path) -> None:
    """Queue the job again where a restart helps, and end with the stage's code."""
    job = os.environ["SLURM_JOB_ID"]
    if code not in AGAIN:
        print(f"slurm: stage {stage} ended with {code}: not queued again", flush=True)
    elif not may_queue_again(workdir, job):
        print(
            f"error: stage {stage}: started {STALLED} times without a new checkpoint or result; "
            "not queued again: see why it ends above, then submit the same command",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    else:
        print(f"slurm: stage {stage} ended with {code}: queued again", flush=True)
        # Slurm may have done so already, for a lost node or a job of higher priority.
        subprocess.run(["scontrol", "requeue", job], check=False)
    sys.exit(code)


def main() -> None:
    """The command."""
    output.outlive_readers()
    words = sys.argv[1:]
    if words[:1] == ["--task"] and len(words) > 1:
        sys.exit(task(words[1], words[2:]))
    if not words or words[0] in ("--help", "-h"):
        print(__doc__, end="")
        return
    stage, *typed = words
    overrides = run_arguments.expand(typed)
    entry_point.run(
        "run", RunConfig, lambda config: drive(stage, config, overrides), argv=overrides
    )


if __name__ == "__main__":
    main()
