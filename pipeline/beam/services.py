"""Run a Beam graph on a job service to its end, and say in one line what went wrong.

What a user can cure is a `ConfigError` that names the key: a service that does not answer, workers
that never begin, workers whose Python lacks a module. An engine that lost the job, or its job that
was cancelled, is a `Restart`: the same command may simply be started again.
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

from pipeline.beam.fast_import import beam
from pipeline.beam.plan import PreparePlan
from pipeline.common.errors import ConfigError, Restart, first_line
from pipeline.config import RunnerConfig

PORTABLE = ("prism", "portable", "flink", "spark")  # that Beam reaches through a job service
POLL = 0.5  # seconds between two looks at the job
SILENCE = 20.0  # seconds without an answer after which a service counts as gone
ENDED = ("DONE", "FAILED", "CANCELLED", "DRAINED", "UPDATED", "STOPPED")
GONE = (grpc.RpcError, requests.ConnectionError, requests.Timeout)


class Died(Restart):
    """A job that ended because a process of the engine died."""

    def __init__(self, what: str):
        super().__init__(f"{what}; start the same command again")
        self.what = what


class Job:
    """A job that a service has taken, as Beam's result of it shows."""

    def __init__(self, runner: RunnerConfig, result: Any):
        self.runner, self.result = runner, result
        self.errors: list[str] = []
        # Flink takes a job in one jar through its REST interface; there is no service between then.
        jobs = getattr(result._job_service, "_jobs", {})
        self.flink = jobs.get(result._job_id) if self.name == "flink" else None
        if self.flink is None:
            threading.Thread(target=self.listen, daemon=True).start()

    @property
    def name(self) -> str:
        """The engine."""
        return self.runner.name

    def listen(self) -> None:
        """Keep the errors that the service reports, until it ends or goes."""
        with contextlib.suppress(*GONE):
            for message in self.result._message_stream:
                said = message.message_response
                if said.message_text and said.importance >= said.JOB_MESSAGE_ERROR:
                    self.errors.append(said.message_text)

    def state(self) -> str:
        """Where the job is now, one of Beam's states; waits while the service is silent for a bit.

        Raises:
            Restart: the service is gone, or has forgotten the job.
        """
        until = time.monotonic() + SILENCE
        while True:
            try:
                return str(self.result.state)
            except GONE as error:
                if time.monotonic() < until and not forgotten(error):
                    time.sleep(POLL)
                    continue
                raise self.restart(
                    f"{self.place()} does not answer any more", "when it does"
                ) from error
            except RuntimeError as error:  # an answer of Flink's that says no
                raise self.restart(f"{self.place()} does not know the job any more") from error

    def restart(self, what: str, when: str = "") -> Restart:
        """The error that asks for the same command again."""
        return Restart(f"runner={self.name}: {what}; start the same command again {when}".rstrip())

    def reason(self) -> str:
        """All that the engine says of why the job failed."""
        if self.flink is not None:
            with contextlib.suppress(Exception):
                return str(self.flink.root_exception())
        else:
            time.sleep(2 * POLL)  # the last message may come after the state
        return "\n".join(self.errors)

    def cancel(self) -> None:
        """Ask the engine to end the job; one that does not answer is left alone."""
        with contextlib.suppress(Exception):
            self.result.cancel()

    def wait(self, scratch: Path, lost_worker: Any = None) -> None:
        """Wait until the job is done.

        Args:
            scratch: where a task leaves `begun` when it starts and `error.json` for a user's error.
            lost_worker: says of a worker of this process how it died; None while all live.

        Raises:
            ConfigError: no worker began, or what they run in lacks a module.
            Restart: the engine lost the job, or somebody cancelled it; Died: a process died.
            RuntimeError: a task failed; the trace of it is the message.
        """
        began = None
        while (state := self.state()) not in ENDED:
            if (scratch / "error.json").exists():  # no retry can help
                raise RuntimeError("a task found a mistake in the input")
            if state == "RUNNING":
                began = began or time.monotonic()
                if not (scratch / "begun").exists():
                    self.check_begun(time.monotonic() - began)
            if lost_worker is not None and (how := lost_worker()):
                raise Died(f"runner={self.name}: a worker process died ({how})")
            time.sleep(POLL)
        if state == "CANCELLED":
            raise self.restart("the job was cancelled", "to have it done")
        if state != "DONE":
            raise self.failure(self.reason(), (scratch / "begun").exists())

    def check_begun(self, waited: float) -> None:
        """Raise if workers should have begun by now.

        Raises:
            ConfigError: they should.
        """
        if waited < self.runner.start_timeout:
            return
        where = self.runner.options.get("environment_config") or "the engine"
        raise ConfigError(
            f"runner.options.environment_config={where}: the job runs, and no worker has begun "
            f"within {self.runner.start_timeout:.0f} s; see that `python -m pipeline.beam.pool` "
            "runs there and the engine has free slots, or raise runner.start_timeout",
            key="runner.options.environment_config",
        )

    def place(self) -> str:
        """The service, as the configuration names it."""
        options = self.runner.options
        for key in ("flink_master", "job_endpoint", "spark_master_url"):
            if options.get(key):
                return f"runner.options.{key}={options[key]}"
        return "its job service"

    def failure(self, reason: str, begun: bool) -> Exception:
        """The error to raise for a job that failed for this reason, after a worker had `begun`."""
        if found := re.search(r"No module named '([\w.]+)'", reason):
            return ConfigError(
                f"runner.options.environment_config={self.runner.options.get('environment_config')}"
                f": the workers' Python has no module {found[1]}; install bert-pipeline there as "
                "it is installed here",
                key="runner.options.environment_config",
            )
        if found := re.search(r"a worker did not start in [^\n]*", reason):
            return ConfigError(
                f"runner.options.environment_config: {found[0]}",
                key="runner.options.environment_config",
            )
        if "Traceback (most recent call last)" in reason:
            start = reason.index("Traceback (most recent call last)")
            python = re.split(r"\n\s+at (?:java|org|com)\.", reason[start:])[0]
            return RuntimeError(f"runner={self.name}: a task failed:\n{python.strip()}")
        if not begun and re.search(r"refused|UNAVAILABLE|DEADLINE_EXCEEDED|timed out", reason):
            return ConfigError(
                f"runner.options.environment_config={self.runner.options.get('environment_config')}"
                f": no worker could be asked for there ({innermost(reason)}); see that "
                "`python -m pipeline.beam.pool` runs",
                key="runner.options.environment_config",
            )
        return Died(f"runner={self.name}: the job failed ({innermost(reason)})")


def run(plan: PreparePlan, engine: Any, flags: Any, build: Callable[[Any], Any]) -> None:
    """Run the graph that `build` makes on the service that `engine` reaches.

    A job that ends because a process of the engine died is started again, `runner.retries` times.

    Raises:
        As `Job.wait`; Restart: the service does not take the job.
    """
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # what matters of Beam's and Java's traces is in the error
    try:
        for left in reversed(range(plan.config.runner.retries + 1)):
            (plan.scratch / "begun").unlink(missing_ok=True)
            try:
                run_once(plan, engine, copy.deepcopy(flags), build)  # a runner writes in its flags
                return
            except Died as error:
                if not left:
                    raise
                print(f"{error.what}; it is started again", file=sys.stderr, flush=True)
    finally:
        logging.disable(level)


def run_once(plan: PreparePlan, engine: Any, flags: Any, build: Callable[[Any], Any]) -> None:
    """Submit the graph, and wait until it is done; whatever goes wrong, no job stays behind."""
    pipeline = beam.Pipeline(runner=engine, options=flags)
    build(pipeline)
    try:
        job = Job(plan.config.runner, pipeline.run())
    except GONE as error:
        raise Restart(
            f"runner={plan.config.runner.name}: the service did not take the job "
            f"({first_line(error)[:300]}); start the same command again"
        ) from error
    try:
        job.wait(plan.scratch, engine.lost_worker)
    except BaseException:
        job.cancel()
        raise
    finally:
        job.result._cleanup()


def forgotten(error: BaseException) -> bool:
    """Whether a service that gave this error has lost the job."""
    return isinstance(error, grpc.RpcError) and error.code() == grpc.StatusCode.NOT_FOUND


def innermost(reason: str) -> str:
    """The last cause in a Java trace, in one line."""
    causes = re.findall(r"^Caused by: (.*)$", reason, re.M)
    line = (causes or reason.strip().split("\n"))[-1].strip() or "no reason is given"
    return re.sub(r"([\w$]+\.)+([\w$]+): ", "", line)[:300]
