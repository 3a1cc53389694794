"""Running a Beam graph on a job service, with one-line errors.

Errors that users can fix are `ConfigError`s that name the key: a service that does not respond,
workers that never start, workers whose Python lacks a module. A lost or cancelled job is a
`Restart`: rerun the command.
"""

import contextlib
import copy
import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import requests

from pipeline.beam import beam_patches
from pipeline.beam.fast_import import beam
from pipeline.config import RunnerConfig
from pipeline.console import terminal
from pipeline.errors import ConfigError, Restart, first_line
from pipeline.preparation.plan import PreparePlan
from pipeline.preparation.progress import start_over

POLL = 0.5  # seconds between polls of the job's state
SILENCE = 20.0  # seconds without a response after which a service counts as lost
ENDED = ("DONE", "FAILED", "CANCELLED", "DRAINED", "UPDATED", "STOPPED")
GONE = (grpc.RpcError, requests.ConnectionError, requests.Timeout)
# Spark's master says so where an operator kills the application; Beam calls the job failed.
_KILLED = "removed our application: KILLED"


class JobLost(Restart):
    """A job that ended because a process of the engine died."""


class Job:
    """A job accepted by a service, observed through Beam's result object."""

    def __init__(self, runner: RunnerConfig, result: Any):
        self.runner, self.result, self.name = runner, result, runner.name
        self.errors: list[str] = []
        self.flink = beam_patches.flink_job(result) if self.name == "flink" else None
        if self.flink is None:
            threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        """Collect the errors that the service reports, until the stream ends or breaks."""
        with contextlib.suppress(*GONE):
            for message in beam_patches.messages(self.result):
                response = message.message_response
                if response.message_text and response.importance >= response.JOB_MESSAGE_ERROR:
                    self.errors.append(response.message_text)

    def state(self) -> str:
        """Return the job's state, one of Beam's; retry for `SILENCE` seconds.

        Raises:
            Restart: the service does not respond, or has lost the job.
        """
        until = time.monotonic() + SILENCE
        while True:
            try:
                return str(self.result.state)
            except GONE as error:
                lost = isinstance(error, grpc.RpcError) and error.code() == grpc.StatusCode.NOT_FOUND
                if time.monotonic() < until and not lost:
                    time.sleep(POLL)
                    continue
                raise self.restart(f"{self.place()} stopped responding", "when it does") from error
            except RuntimeError as error:  # an error response of Flink
                raise self.restart(f"{self.place()} no longer knows the job") from error

    def restart(self, what: str, when: str = "") -> Restart:
        """Return the error that asks to rerun the command."""
        return Restart(f"runner={self.name}: {what}", f"rerun the command {when}".rstrip())

    def cancelled(self) -> Restart:
        """Return the error for a job that an operator ended."""
        return self.restart("the job was cancelled", "to finish it")

    def reason(self) -> str:
        """Return the engine's reports on why the job failed."""
        if self.flink is not None:
            with contextlib.suppress(Exception):
                path = beam_patches.flink_path(self.flink)
                return str(self.flink.get(f"{path}/exceptions").get("root-exception") or "")
        else:
            time.sleep(2 * POLL)  # the last message may arrive after the state
        return "\n".join(self.errors)

    def cancel(self) -> None:
        """Ask the engine to cancel the job; ignore failures."""
        with contextlib.suppress(Exception):
            if self.flink is None:
                self.result.cancel()
            else:  # Beam asks an endpoint that Flink does not have
                requests.patch(beam_patches.flink_url(self.flink), params={"mode": "cancel"}, timeout=10)
                self.flink.delete_jar()

    def wait(self, scratch: Path, lost_worker: Any = None) -> None:
        """Wait until the job is done.

        Args:
            scratch: folder with the tasks' files: `begun` after a start, `error.json` on an error.
            lost_worker: returns how a worker of this process died, or None.

        Raises:
            ConfigError: no worker started, or a worker's Python lacks a module.
            Restart: the engine lost the job, or it was cancelled; Died: a process died.
            RuntimeError: a task failed; the message is its traceback.
        """
        began = None
        while (state := self.state()) not in ENDED:
            if (scratch / "error.json").exists():  # no retry can help
                raise RuntimeError("a task found an error in the input")
            if state == "RUNNING":
                began = began or time.monotonic()
                late = time.monotonic() - began >= self.runner.start_timeout
                if late and not (scratch / "begun").exists():
                    raise self.no_worker(
                        f"the job is running, but no worker started within {self.runner.start_timeout:.0f} s; make "
                        "sure that `python -m pipeline.beam.pool` runs there and the engine has free slots, or raise "
                        "runner.start_timeout",
                        "the engine",
                    )
            if lost_worker is not None and (how := lost_worker()):
                raise JobLost(f"runner={self.name}: a worker process died ({how})", "rerun the command")
            time.sleep(POLL)
        if state == "CANCELLED":
            raise self.cancelled()
        if state != "DONE":
            raise self.failure(self.reason(), (scratch / "begun").exists())

    def no_worker(self, problem: str, else_where: str | None = None) -> ConfigError:
        """Return the error of workers that do not start."""
        key = "environment_config"
        return ConfigError(problem, f"runner.options.{key}", self.runner.options.get(key) or else_where)

    def place(self) -> str:
        """Return the service's name in the configuration."""
        options = self.runner.options
        keys = filter(options.get, ("flink_master", "job_endpoint", "spark_master_url"))
        return next((f"runner.options.{key}={options[key]}" for key in keys), "its job service")

    def failure(self, reason: str, begun: bool) -> Exception:
        """Return the error for a job that failed for this reason; `begun`: a worker had started."""
        if _KILLED in reason:
            return self.cancelled()
        if match := re.search(r"No module named '([\w.]+)'", reason):
            return self.no_worker(
                f"the workers' Python has no module {match[1]}; install the same bert-pipeline there as here"
            )
        if match := re.search(r"a worker did not start in [^\n]*", reason):
            return ConfigError(f"{match[0]}", "runner.options.environment_config")
        if "Traceback (most recent call last)" in reason:
            start = reason.index("Traceback (most recent call last)")
            python = re.split(r"\n\s+at (?:java|org|com)\.", reason[start:])[0]
            return RuntimeError(f"runner={self.name}: a task failed:\n{python.strip()}")
        if not begun and re.search(r"refused|UNAVAILABLE|DEADLINE_EXCEEDED|timed out", reason):
            return self.no_worker(
                f"the worker pool cannot be reached ({innermost(reason)}); make sure that `python -m "
                "pipeline.beam.pool` runs"
            )
        return JobLost(f"runner={self.name}: the job failed ({innermost(reason)})", "rerun the command")


def run(plan: PreparePlan, engine: Any, flags: Any, build: Callable[[Any, PreparePlan], Any]) -> None:
    """Run the graph made by `build` on the job service of `engine`.

    A job that ends because a process of the engine died is retried up to `runner.retries` times.

    Raises:
        As `Job.wait`; Restart: the service did not accept the job, or the pool died.
    """
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # the error has what matters of Beam's and Java's tracebacks
    try:
        for left in reversed(range(plan.config.runner.retries + 1)):
            (plan.scratch / "begun").unlink(missing_ok=True)
            try:
                run_once(plan, engine, copy.deepcopy(flags), build)  # runners modify their flags
                return
            except JobLost as error:
                if not left:
                    raise
                terminal.say(f"{error.problem}; retrying from the start ({start_over(plan)})", sys.stderr)
            except ConfigError as error:
                if left == plan.config.runner.retries:
                    raise
                # Workers had started before: the pool has died since.
                raise Restart(f"runner={plan.config.runner.name}: {error}", "then rerun the command") from error
    finally:
        logging.disable(level)


def run_once(plan: PreparePlan, engine: Any, flags: Any, build: Callable[[Any, PreparePlan], Any]) -> None:
    """Submit the graph and wait until it is done; cancel the job on any error."""
    pipeline = beam.Pipeline(runner=engine, options=flags)
    build(pipeline, plan)
    try:
        job = Job(plan.config.runner, pipeline.run())
    except GONE as error:
        raise Restart(
            f"runner={plan.config.runner.name}: the service did not accept the job ({first_line(error)[:300]})",
            "rerun the command",
        ) from error
    try:
        job.wait(plan.scratch, engine.lost_worker)
    except BaseException:
        job.cancel()
        raise
    finally:
        beam_patches.clean_up(job.result)


def innermost(reason: str) -> str:
    """Return the root cause in a Java stack trace, in one line."""
    causes = re.findall(r"^Caused by: (.*)$", reason, re.M)
    line = (causes or reason.strip().split("\n"))[-1].strip() or "no reason given"
    return re.sub(r"([\w$]+\.)+([\w$]+): ", "", line)[:300]
