"""Follow the stages of a run until all are done: one loop, whatever makes processes of them."""

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from pipeline.console import terminal
from pipeline.console.formatting import WARNING
from pipeline.errors import Exit, InputError, Restart, UserError, read_errors
from pipeline.orchestration.run_plan import FORCED, Groups, StageRecord, StageRecords
from pipeline.records.manifest import Manifest
from pipeline.stages import stage

VISIBLE = 120.0  # seconds until a file system shows another node's rename

Answer = TypeVar("Answer")


class StageFailed(Exception):
    """A stage ended with an error other than a user's mistake; the message names its log."""


class NoAnswer(Exception):
    """Whom one asks does not answer now, for this reason."""


class Executor(ABC):
    """Where the stages of a run become processes: on this machine, by Slurm, on Kubernetes."""

    poll = 0.1  # seconds between two looks
    visible = VISIBLE  # seconds in which what a job has made appears here
    longest_wait = 600.0  # seconds without an answer until one gives up
    asked = ""  # who answers
    tick = ""  # before the line of a stage that is done

    def __init__(self) -> None:
        self.said: dict[str, str] = {}  # the last line printed about each job

    @abstractmethod
    def run(self, nodes: StageRecords) -> None:
        """Run the stages that have to run, until all are done.

        Raises:
            UserError, Restart, StageFailed: one failed; the message says which, and why.
        """

    def expected(self, nodes: StageRecords) -> str:
        """Return what `run` would have others start, for a person to read; nothing of this machine's."""
        return ""

    @abstractmethod
    def refresh(self, groups: Groups) -> None:
        """Learn the states of all jobs that are to come."""

    @abstractmethod
    def advance(self, name: str, members: StageRecords, due: bool) -> bool:
        """Start a job that is `due`, print its state, and return whether it has ended well.

        Raises:
            UserError, Restart, StageFailed: it has failed.
        """

    @abstractmethod
    def missing_output(self, name: str, members: StageRecords) -> Exception:
        """Return the error of a job that has ended well and left no results."""

    def run_loop(self, nodes: StageRecords, groups: Groups) -> None:
        """Follow the jobs of `groups` until all are done.

        Raises:
            UserError, Restart, StageFailed: one failed.
        """
        done, width = {node.name for node in nodes if node.reason is None}, width_of(nodes)
        ended: dict[str, float] = {}
        while groups:
            self.refresh(groups)
            for name, members in list(groups.items()):
                due = all(need in done for node in members for need in node.needs)
                if not self.advance(name, members, due):
                    continue
                manifests = {node.name: manifest for node in members if (manifest := node.made())}
                if len(manifests) < len(members):
                    now = time.monotonic()
                    if now - ended.setdefault(name, now) >= self.visible:
                        raise self.missing_output(name, members)
                    continue
                for each, manifest in manifests.items():
                    summary, *warnings = manifest.summary.split(WARNING)
                    terminal.say_line(f"{self.tick}{each:<{width}}  {manifest.seconds:8.1f} s   {summary}")
                    for text in warnings:  # the end of a long line is cut
                        terminal.say(f"warning: {each}: {text}")
                done |= manifests.keys()
                del groups[name]
            if groups:
                time.sleep(self.poll)

    def say(self, name: str, what: str) -> None:
        """Print a line about a job, if it is not the last one that was."""
        if self.said.get(name) != what:
            self.said[name] = what
            print(f"{name:<12}  {what}", flush=True)

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Return the answer to a question, which is asked again while it raises `NoAnswer`.

        Raises:
            Restart: there is none for longer than `longest_wait`.
        """
        until = time.monotonic() + self.longest_wait
        while True:
            try:
                return question()
            except NoAnswer as error:
                if time.monotonic() > until:
                    raise Restart(f"{self.asked} does not respond ({error})") from error
            time.sleep(self.poll)


def width_of(nodes: Iterable[StageRecord]) -> int:
    """Return the width of a column of stages' names."""
    return max(len(node.name) for node in nodes)


def announce_done(nodes: StageRecords) -> None:
    """Print one line for each stage that is up to date."""
    width = width_of(nodes)
    for node in nodes:
        if node.reason is None:
            manifest = Manifest.read(node.out)
            assert manifest is not None
            terminal.say_line(f"{node.name:<{width}}  up to date   {manifest.summary}")


def delete_forced(nodes: StageRecords) -> None:
    """Delete the results of the stages that the user has named to run again."""
    for node in nodes:
        if node.reason == FORCED:
            stage.delete(node.kind, node.config, node.fingerprint)


def failure(name: str, code: int, log: Path) -> Exception:
    """Return the exception for a stage that ended early: an error of the user, a restart or a bug.

    The run ends with the same exit code, except for bugs. The message quotes the stage's error.
    """
    text = log.read_text(errors="replace")
    if not text and not shutil.disk_usage(log.parent).free:
        why = f"no space left on the disk of its log {log}; free some, and rerun the same command"
        return InputError(why, "workdir", where=f"stage {name}")
    errors = [error for error in read_errors(text) if error.code == code and error.problem]
    for error in errors:
        if isinstance(error, UserError):
            return add_stage_name(name, error, f" (log: {log})")
    if code == Exit.RESTART:
        how = errors[-1].problem if errors else "interrupted"  # the launcher's comes last
        return Restart(f"stage {name}: {how} (log: {log})", "rerun the same command to resume")
    code = 128 - code if code < 0 else code  # of a signal, as shells say it
    return StageFailed(
        f"stage {name} ended with exit code {code}; the end of its log {log}:\n" + "\n".join(text.splitlines()[-15:])
    )


def add_stage_name(name: str, error: UserError, more: str = "") -> UserError:
    """Return the error of a stage, with its name."""
    where = f"stage {name}: {error.where}" if error.where else f"stage {name}"
    return error.but(where=where, problem=f"{error.problem}{more}")
