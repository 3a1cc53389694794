"""What is patched of Beam is one version, and nothing outside of one file is patched."""

import ast
import subprocess
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apache_beam
import grpc
import pytest
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker.data_plane import ClosableOutputStream

from pipeline.beam import beam_patches, runners
from pipeline.config import RunnerConfig
from pipeline.errors import InputError
from pipeline.preparation.shuffle import ShuffleLayout
from tests.support.refusals import refused

PATCHES = "pipeline/beam/beam_patches.py"


@pytest.mark.parametrize("version", ["2.76.0", "2.78.0", "3.0.0"])
def test_another_version_is_refused_at_the_start(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apache_beam, "__version__", version)
    with (
        refused(InputError, "pip install", key="apache-beam"),
        runners.start(RunnerConfig(), ShuffleLayout.choose(1, 1, 1, 1)),
    ):
        pass


def test_the_version_is_the_one_that_is_installed_with_the_project(root: Path) -> None:
    beam_patches.apply()
    wanted = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    major, minor = beam_patches.VERSION.split(".")
    assert f"apache-beam>={beam_patches.VERSION},<{major}.{int(minor) + 1}" in wanted


def test_ports_that_beam_asks_for_are_on_loopback_alone() -> None:
    beam_patches.apply()
    server = grpc.server(ThreadPoolExecutor(1))
    port = f"{server.add_insecure_port('[::]:0'):04X}"
    server.start()
    lines = (line for name in ("tcp", "tcp6") for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:])
    listens = {line.split()[1].partition(":")[0] for line in lines if line.split()[1].endswith(f":{port}")}
    server.stop(0)
    assert listens
    assert listens <= {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def test_the_options_of_beam_are_known() -> None:
    assert {"job_endpoint", "no_save_main_session", "flink_master"} <= beam_patches.known_options()


def test_one_file_replaces_attributes_of_beam_and_grpc_and_reads_private_ones(root: Path) -> None:
    found = set()
    for path in (root / "pipeline" / "beam").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                private = node.attr.startswith("_") and not node.attr.startswith("__")
                patched = isinstance(node.ctx, ast.Store) and ast.unparse(node.value) in {"grpc", "worker_handlers"}
                if patched or (private and ast.unparse(node.value) not in {"self", "cls", "sys"}):
                    found.add(path.relative_to(root).as_posix())
    assert found == {PATCHES}


def test_a_worker_that_does_not_end_with_the_work_is_killed() -> None:
    handler = object.__new__(beam_patches.LocalWorker)
    run = ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
    handler.worker_thread = threading.Thread(target=subprocess.run, args=(run,))
    handler.worker_thread.start()
    before = threading.excepthook
    try:
        handler.stop_worker()
    finally:
        threading.excepthook = before
    assert not handler.worker_thread.is_alive()


def lost_bytes(limit: int) -> int:
    """What Beam's stream between stages loses in a fifth of a second, flushed after `limit` ms."""
    sent: list[int] = []

    def send(data: bytes) -> None:
        sent.append(len(data))
        time.sleep(0.001)  # as a queue lets another thread go on

    stream = ClosableOutputStream.create(send, send, limit)
    until, written = time.monotonic() + 0.2, 0
    while time.monotonic() < until:
        stream.write(bytes(100))
        stream.maybe_flush()
        written += 100
    stream.close()
    return written - sum(sent)


def test_the_guard_is_against_a_real_loss() -> None:
    """Where the first line fails, Beam has been mended, and the guard can go."""
    assert lost_bytes(1) > 0
    beam_patches.apply()
    assert lost_bytes(worker_handlers.DATA_BUFFER_TIME_LIMIT_MS) == 0
