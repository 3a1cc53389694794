"""Every patch of Beam and gRPC, and every private part of them that is read, each with its reason.

They are of one version, so that another is refused at the start.
"""

import argparse
import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import grpc

from pipeline.beam.fast_import import PipelineOptions, beam, python_urns, worker_handlers
from pipeline.errors import InputError

VERSION = "2.77"  # `pyproject.toml` has the range; a test compares them
POLL, ENDS = 0.1, 2.0  # seconds that a worker has to end

_server = grpc.server


def apply() -> None:
    """Patch Beam before a job starts.

    Raises:
        InputError: another version is installed.
    """
    version = beam.__version__
    if version.rpartition(".")[0] != VERSION:
        raise InputError(
            f"version {version} is not supported, as documents could be lost; run python -m pip install "
            f"apache-beam=={VERSION}.0",
            "apache-beam",
        )
    # Beam's workers are on this machine, and run what its ports send: it asks for all addresses.
    grpc.server = serve_loopback
    # Beam flushes from a second thread after this time, and can lose elements in that race.
    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0
    # Beam waits for ever for a worker that began when the work had ended.
    worker_handlers.WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)(LocalWorker)


def serve_loopback(*args: Any, **options: Any) -> Any:
    """Return gRPC's server, but on the loopback address where Beam asks for all of them."""
    server = _server(*args, **options)
    bind = server.add_insecure_port
    server.add_insecure_port = lambda place: bind(place.replace("[::]", "localhost"))
    return server


class LocalWorker(worker_handlers.SubprocessSdkWorkerHandler):
    """Beam's handler of a process on this machine, but one that does not end with the work is killed."""

    def start_worker(self) -> None:
        """Start the process with Ctrl-C blocked, which is for the one that ends it."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().start_worker()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def stop_worker(self) -> None:
        """Wait until the process has ended."""
        self.worker_thread.join(ENDS)
        children = Path(f"/proc/self/task/{self.worker_thread.native_id}/children")
        while self.worker_thread.is_alive():
            threading.excepthook = lambda _: None  # Beam's thread would say in ten lines that it was killed
            with contextlib.suppress(OSError):
                for child in children.read_text().split():
                    os.kill(int(child), signal.SIGKILL)
            self.worker_thread.join(POLL)


def known_options() -> set[str]:
    """Return the names of all options of Beam, without dashes: it ignores what it does not know."""
    parsers: list[argparse.ArgumentParser] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    return {flag.lstrip("-") for flag in parsers[0]._option_string_actions}


def flink_job(result: Any) -> Any:
    """Return the job of a result that Flink accepted as one jar, without a job service; else None.

    It has `get(path)` and `delete_jar()`.
    """
    return getattr(result._job_service, "_jobs", {}).get(result._job_id)


def flink_path(job: Any) -> str:
    """Return the path of such a job in Flink's REST interface."""
    return f"v1/jobs/{job._flink_job_id}"


def flink_url(job: Any) -> str:
    """Return the whole address of such a job."""
    return f"{job._master_url}/{flink_path(job)}"


def messages(result: Any) -> Any:
    """Return the messages of a job service until the stream ends: Beam logs them alone."""
    return result._message_stream


def clean_up(result: Any) -> None:
    """Stop the processes that Beam has started for a job, which it does only where it waits itself."""
    result._cleanup()
