"""Run the stages of a graph as Slurm jobs: one per stage, with its own resources.

A job depends in Slurm's queue on the jobs of the stages that it reads from; evaluations are an
array. The queue holds all state: this process may end at any moment, and a new one follows the
queued jobs.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from pipeline.config import ExecutorConfig
from pipeline.config.run import TIME
from pipeline.errors import ConfigError, Restart, UserError, read_errors
from pipeline.orchestration.follow import Executor, NoAnswer, StageFailed, delete_forced, failure
from pipeline.orchestration.run_plan import FORCED, Groups, Run, StageRecords, group_by_job
from pipeline.orchestration.slurm_job import MODULE, job_record
from pipeline.stages.registry import ARRAY, NODES, ONE, STAGES, placement_of

NAME = "bert"  # prefix of job names, before the stage
MARGIN = 300  # seconds before the time limit when a stage is signalled to save
OVER = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "REVOKED", "TIMEOUT")


Jobs = dict[str, str]  # ids by stage, or states by id


class SlurmExecutor(Executor):
    """Executor of stages as jobs, which it submits at once and follows but never cancels."""

    asked = "Slurm's controller"

    def __init__(self, config: ExecutorConfig, run: Run):
        super().__init__()
        check_options(config)
        if shutil.which("sbatch") is None:
            raise ConfigError("sbatch not found; run the command on a login node of the cluster", "executor", "slurm")
        self.config, self.record, self.workdir = config, run, Path(run.workdir).absolute()
        self.logs, self.poll = self.workdir / "logs", config.poll
        self.states: Jobs = {}  # of jobs, at the last look
        self.jobs = self._queued()  # by stage: before the record of another run is written over theirs

    def run(self, nodes: StageRecords) -> None:
        """Submit the stages that have to run and are not queued, and follow all jobs.

        Raises:
            ConfigError: a stage that is forced is in the queue.
            UserError, Restart, StageFailed: a stage failed, see `follow.failure`.
        """
        groups, jobs = group_by_job(nodes), self.jobs
        for node in nodes:
            if node.reason == FORCED and node.job in jobs:
                what = f"its job is in the queue; scancel {jobs[node.job]}, or leave out force"
                raise ConfigError(what, "force", node.name)
        delete_forced(nodes)
        for stage, members in groups.items():
            if stage not in jobs:
                jobs[stage] = self._submit(stage, members[0].kind, find_awaited(nodes, members, jobs))
        if not self.config.wait:
            return
        try:
            self.run_loop(nodes, dict(groups))
        except KeyboardInterrupt:
            job_ids = " ".join(jobs[stage] for stage in groups)
            print(f"the jobs stay in the queue; to cancel them: scancel {job_ids}", flush=True)
            raise

    def expected(self, nodes: StageRecords) -> str:
        """Return the command and the script of each job that has to be submitted, after others by their names."""
        groups = group_by_job(nodes)
        jobs = dict(zip(groups, groups, strict=True)) | self.jobs
        lines = []
        for name, members in groups.items():
            words = self._words(name, members[0].kind, find_awaited(nodes, members, jobs))
            new = f"{shlex.join(words)} <<'END'\n{self._script(name)}END"
            lines.append(f"{name}: job {jobs[name]} is in the queue" if name in self.jobs else new)
        return "\n".join(lines)

    def _submit(self, stage: str, kind: str, before: list[str]) -> str:
        """Submit a stage's job and return its id."""
        self.logs.mkdir(parents=True, exist_ok=True)
        job = self._ask(self._words(stage, kind, before), self._script(stage)).strip().partition(";")[0]
        waits = f", after {', '.join(before)}" if before else ""
        self.say(stage, f"job {job} submitted{waits}")
        return job

    def _words(self, stage: str, kind: str, before: list[str]) -> list[str]:
        """Return the command that submits a job; the script is its input."""
        config, placed = self.config, placement_of(kind)
        wide, array = placed == NODES, placed == ARRAY
        gpus = config.gpus if wide else min(1, config.gpus) if array else 0
        return [
            "sbatch",
            "--parsable",
            "--requeue",
            "--open-mode=append",
            f"--chdir={Path.cwd()}",
            f"--job-name={NAME}-{stage}",
            f"--comment={self.workdir}#{self.record.digest(stage)}",
            f"--signal=TERM@{margin(config.time)}",
            f"--time={config.time}",
            "--ntasks-per-node=1",
            f"--output={self.logs.as_posix().replace('%', '%%')}/{stage}-{'%A_%a' if array else '%j'}.out",
            *([f"--array=0-{config.parts - 1}"] if array else []),
            f"--nodes={config.nodes if wide else 1}",
            f"--cpus-per-task={1 if placed == ONE else config.cpus}",
            *([f"--gpus-per-node={gpus}"] if gpus else []),
            *(f"--{option}={value}" for option in ("account", "partition") if (value := getattr(config, option))),
            *([f"--dependency=afterok:{':'.join(before)}", "--kill-on-invalid-dep=yes"] if before else []),
            *config.options.get("all", []),
            *config.options.get(kind, []),
        ]

    def _script(self, stage: str) -> str:
        """Return the batch script: the user's `setup`, then the stage."""
        command = [sys.executable, "-m", MODULE, stage, str(self.workdir), self.record.digest(stage)]
        return "\n".join(["#!/bin/bash", *self.config.setup, f"exec {shlex.join(command)}", ""])

    def _ask(self, words: list[str], text: str = "") -> str:
        """Return the output of a Slurm command, retrying while the controller is unavailable.

        Raises:
            ConfigError: the command failed.
            Restart: the controller is unavailable for longer than `longest_wait`.
        """
        return self.ask(lambda: answer(words, text))

    def _queued(self) -> Jobs:
        """Return the queued jobs of this run by stage.

        Raises:
            ConfigError: one was submitted with other settings.
        """
        listed = self._ask(["squeue", "--me", "--noheader", "--format=%A|%F|%j|%k"])
        queued = {}
        for line in listed.splitlines():
            _, job, name, comment = line.strip().split("|", 3)
            stage = name.removeprefix(f"{NAME}-")
            folder, _, digest = comment.rpartition("#")
            if folder != str(self.workdir) or stage == name:
                continue
            if digest != self.record.digest(stage):
                raise ConfigError(
                    f"job {job} of stage {stage} is queued with other settings; wait for it, or scancel {job}, and "
                    "rerun the command",
                    "workdir",
                    self.workdir,
                )
            queued[stage] = job
        return queued

    def advance(self, name: str, members: StageRecords, due: bool) -> bool:
        """Say the state of a job, and return whether it has ended well.

        Raises:
            UserError, Restart, StageFailed: it has failed.
        """
        state = self.states.get(self.jobs[name], "COMPLETED")
        word = state.split()[0]
        if word not in OVER:
            self.say(name, f"job {self.jobs[name]} {state}")
        elif word != "COMPLETED":
            raise self._failure(name, state)
        return word == "COMPLETED"

    def missing_output(self, name: str, members: StageRecords) -> Exception:
        """Return the error of a job that has ended well and left no results."""
        return self._failure(name, "ended, but left no result with these settings")

    def refresh(self, groups: Groups) -> None:
        """Learn the states of the jobs that Slurm still lists; for an array, the worst state."""
        listed = self._ask(["squeue", "--me", "--noheader", "--states=all", "--format=%F|%T|%r"])
        states: Jobs = {}
        job_ids = {self.jobs[name] for name in groups}
        for line in listed.splitlines():
            job, state, reason = line.strip().split("|", 2)
            if job in job_ids:
                shown = state if reason == "None" or state != "PENDING" else f"{state} ({reason})"
                before = states.get(job, "COMPLETED")
                running = before.split()[0] not in OVER
                if before == "COMPLETED" or (running and state in OVER and state != "COMPLETED"):
                    states[job] = shown
        self.states = states

    def _failure(self, stage: str, state: str) -> Exception:
        """Return the exception for a failed job, from the log of its most relevant task."""
        job = self.jobs[stage]
        code = next(filter(None, map(int, re.findall(r"\bExitCode=(\d+)", job_record(job)))), 1)
        logs = sorted(self.logs.glob(f"{stage}-{job}*.out"))
        telling = [
            log for log in logs if any(error.code == code for error in read_errors(log.read_text(errors="replace")))
        ]
        if not logs:
            return StageFailed(f"stage {stage}: job {job} {state}; no log found in {self.logs}")
        error = failure(stage, code, (telling or logs)[0])
        if isinstance(error, UserError | Restart):
            return error
        return StageFailed(f"job {job} {state}: {error}")


def find_awaited(nodes: StageRecords, members: StageRecords, jobs: Jobs) -> list[str]:
    """Return the jobs whose end a job of the stages `members` waits for."""
    needs = {need for node in members for need in node.needs}
    first = [node for node in nodes if node.name in needs and node.reason is not None]
    return list(dict.fromkeys(jobs[node.job] for node in first))


def answer(words: list[str], text: str) -> str:
    """Return the output of a Slurm command, whose input is `text`.

    Raises:
        NoAnswer: the controller does not respond.
        ConfigError: the command failed.
    """
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
    if "Unable to contact slurm controller" in reason or "Socket timed out" in reason:
        raise NoAnswer(reason)
    raise ConfigError(reason, "executor", path=words[0])


def check_options(config: ExecutorConfig) -> None:
    """Raise ConfigError for options of sbatch that no job would get."""
    kinds = ("all", *STAGES)
    unknown = next((kind for kind in config.options if kind not in kinds), None)
    if unknown is not None:
        raise ConfigError(f"no such kind of stage; choose one of {', '.join(kinds)}", f"executor.options.{unknown}")


def margin(limit: str) -> int:
    """Return how many seconds before a time limit (of sbatch) a stage is signalled to save."""
    match = TIME.fullmatch(limit)
    if match is None:  # such as UNLIMITED
        return MARGIN
    seconds = sum(int(part or 0) * unit for part, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))
    return min(MARGIN, seconds // 4) or MARGIN
