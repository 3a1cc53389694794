"""Run stages within a Slurm job: `python -m pipeline.orchestration.slurm_job STAGE RUN DIGEST`.

Batch scripts call it: that of `executor=slurm` for one stage of the record in RUN, deploy/slurm.sh
for all stages in turn, with `all` and the words of a run. Each stage is a step: `srun` starts this
module again as each task, which runs `pipeline.orchestration.run_stage`.

Across nodes the most serious exit code counts: errors that need a person outweigh those that a
restart fixes. A job that was preempted, lost a node or reached its time limit is requeued, unless
it was cancelled or has started STALLED times without a new checkpoint or result.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from model.distributed.environment import RUN, SECRET
from model.launching import rank_endings
from model.resilience.watchdog import STOPPING
from pipeline.cli import entry_point
from pipeline.config import RunConfig
from pipeline.console import output, terminal
from pipeline.errors import ConfigError, Exit, UserError
from pipeline.orchestration import compose_run, graph, run_plan, stage_commands
from pipeline.orchestration.follow import delete_forced
from pipeline.records import run_file
from pipeline.stages.registry import ARRAY, NODES, placement_of
from pipeline.storage import strict_json
from pipeline.storage.atomic import write_text
from pipeline.storage.checksums import sha256_of

MODULE = "pipeline.orchestration.slurm_job"
LEAVING = 5.0  # seconds in which training's other tasks end by themselves when one has ended
STALLED = 3  # starts without progress, after which a job is not requeued
KILLED, TERMINATED, HUNG_UP = 137, 143, 129  # 128 + signal
# By severity: after which a job starts again, and after which it does not.
AGAIN = (Exit.RESTART, Exit.INTERRUPTED, HUNG_UP, TERMINATED, KILLED)
FINAL = (Exit.BUG, Exit.DIVERGED, Exit.USER)
# srun exits with the highest code of its tasks, so these are ordered by severity. A task that is
# killed exits with 137; srun exits with 1 if it cannot start a task.
STEP_CODES = {code: 101 + n for n, code in enumerate(AGAIN)} | {code: 201 + n for n, code in enumerate(FINAL)}


def encode_exit(code: int) -> int:
    """Return the exit code of a task for the exit code of its stage's process."""
    return STEP_CODES.get(code, STEP_CODES[Exit.BUG] if code < 128 else 105) if code else 0


def decode_exit(code: int) -> int:
    """Return a stage's exit code from that of its srun."""
    return next((int(ours) for ours, step in STEP_CODES.items() if code == step), code)


def task(stage: str, words: list[str]) -> int:
    """Run a stage as one task of a step and return the exit code for srun."""
    environment = os.environ
    environment["BERT_GPUS"] = environment.get("SLURM_GPUS_ON_NODE", "0")
    # Slurm signals every process of a step: the stage handles it, and this process waits.
    heard: list[int] = []
    for number in STOPPING:
        signal.signal(number, lambda number, frame: heard.append(number))
    code = stage_commands.run([sys.executable, *stage_commands.ELSEWHERE, *words])
    # A signal while Python exits would replace the exit code.
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    others = int(environment.get("SLURM_NTASKS", "1")) > 1
    alone = code and placement_of(stage) == NODES and not heard  # the others have had no signal
    if others and alone and code not in FINAL:
        time.sleep(LEAVING)
    if others and (code in FINAL or alone):
        # The others would wait for this one, or hang before they join: let them save and end.
        step = f"{environment['SLURM_JOB_ID']}.{environment['SLURM_STEP_ID']}"
        subprocess.run(["scancel", "--signal=TERM", step], check=False, capture_output=True)
    return encode_exit(code)


def run_step(stage: str, nodes: int, words: list[str]) -> int:
    """Run a stage on nodes of this job and return its exit code; `words` name it in the record of the run."""
    # Tasks need this job's environment also where it was submitted with --export=NONE.
    command = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--kill-on-bad-exit=0", "--export=ALL"]
    if nodes > 1:
        command.append("--label")
    if os.environ.get("SLURM_CPUS_PER_TASK"):  # a step does not inherit it from its job
        command.append(f"--cpus-per-task={os.environ['SLURM_CPUS_PER_TASK']}")
    print(f"slurm: stage {stage} on {nodes} of this job's nodes", flush=True)
    command += [sys.executable, "-m", MODULE, "--task", stage, *words]
    return decode_exit(stage_commands.run(command))


def progress(workdir: Path) -> str:
    """Return a digest of a run's checkpoints, results and finished stages."""
    paths = [*workdir.glob("*/checkpoints/*/step-*"), *workdir.glob("*/*.json")]
    return sha256_of("\n".join(sorted(f"{path} {path.stat().st_mtime_ns}" for path in paths if path.exists())))


def may_queue_again(workdir: Path, job: str) -> bool:
    """Record a start of the job, and return whether it may start again."""
    path = workdir / "logs" / f".slurm-{job}"
    path.parent.mkdir(parents=True, exist_ok=True)
    before = strict_json.own(path)
    now = progress(workdir)
    times = before["times"] + 1 if before.get("progress") == now else 1
    write_text(path, json.dumps({"progress": now, "times": times}))
    return times < STALLED


def drive_all(config: RunConfig) -> None:
    """Run the stages that have to run in this job, each on as many nodes as it takes.

    Raises:
        ConfigError: the process is not part of a Slurm job.
        InputError: an input does not exist.
    """
    begin()
    if os.environ.get("SLURM_RESTART_COUNT", "0") != "0":
        config.force = []  # what they had made was deleted when the job began
    nodes = graph.plan_graph(config)
    graph.check_places(config, nodes)
    run_plan.record_run(config, nodes, here=False).write()
    delete_forced(nodes)
    for job in run_plan.group_by_job(nodes):
        run_job(job, Path(config.workdir))


def drive(stage: str, workdir: str, digest: str) -> None:
    """Run one stage in this job, if the record of the run still is the one of `digest`.

    Raises:
        ConfigError: the process is not part of a Slurm job, or another run has the folder now.
    """
    begin()
    run = run_plan.read(run_file.place_of(workdir))
    if run.digest(stage) != digest:
        raise ConfigError(
            f"another run with other settings of {stage} has been started since this job was submitted; submit again",
            "workdir",
            workdir,
        )
    run_job(stage, Path(workdir))


def begin() -> None:
    """Take over this job's environment and signals.

    Raises:
        ConfigError: the process is not part of a Slurm job.
    """
    if "SLURM_JOB_ID" not in os.environ:
        raise ConfigError("is not set; submit with sbatch (docs/slurm.md)", "SLURM_JOB_ID")
    # At the time limit and for scancel, Slurm signals this process too: it waits for its step,
    # which saves, and then decides.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    os.environ[SECRET] = secrets.token_hex(16)
    os.environ[RUN] = f"{os.environ['SLURM_JOB_ID']}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"


def run_job(stage: str, workdir: Path) -> None:
    """Run the step of a stage; requeue the job where that helps."""
    wide = placement_of(stage) in (NODES, ARRAY)
    words = [f"{run_file.place_of(str(workdir))}#{stage}"]
    if code := run_step(stage, int(os.environ["SLURM_JOB_NUM_NODES"]) if wide else 1, words):
        finish(stage, code, workdir)


def job_record(job: str) -> str:
    """Return what Slurm says of a job; nothing if it does not answer."""
    words = ["scontrol", "--oneliner", "show", "job", job]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def finish(stage: str, code: int, workdir: Path) -> None:
    """Requeue the job where a restart helps, and exit with the stage's code."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one more would replace the exit code
    job = os.environ["SLURM_JOB_ID"]
    fields = dict(word.partition("=")[::2] for word in reversed(job_record(job).split()))  # none if it does not answer
    state, at_limit = fields.get("JobState", ""), fields.get("Reason") == "TimeLimit"
    name = rank_endings.signal_name(code) if code > 128 else None
    ended = f"slurm: stage {stage} ended {f'by {name}' if name else f'with exit code {code}'}"
    if at_limit:
        ended += " at the time limit"
    if state not in ("", "RUNNING") and not at_limit:
        # Cancelled; or requeued by Slurm itself, for a job of higher priority or a lost node.
        print(f"{ended}, as Slurm ended the job", flush=True)
    elif code not in AGAIN and not (code == Exit.BUG and at_limit):  # no further step could start
        print(f"{ended}; not requeued", flush=True)
    elif not may_queue_again(workdir, job):
        print(f"{ended}; not requeued", flush=True)
        terminal.tell(
            UserError(
                f"started {STALLED} times without a new checkpoint or result; fix the cause above (SIGTERM: perhaps "
                "too short a time limit), then submit the same command",
                where=f"stage {stage}",
            )
        )
    else:
        print(f"{ended}; requeued", flush=True)
        subprocess.run(["scontrol", "requeue", job], check=False)
    sys.exit(code)


def main() -> None:
    """Run the command."""
    output.outlive_readers()
    words = sys.argv[1:]
    if words[:1] == ["--task"] and len(words) > 1:
        sys.exit(task(words[1], words[2:]))
    if not words or words[0] in ("--help", "-h"):
        print(__doc__, end="")
        return
    if words[0] == "all":
        compose_run.start(words[1:], drive_all)
    os.environ[terminal.RECORDS] = "1"
    stage, workdir, digest = words
    entry_point.run_guarded(lambda: drive(stage, workdir, digest))


if __name__ == "__main__":
    main()
