"""What is patched of Beam is one version, and nothing outside of one file is patched."""

import ast
import multiprocessing
import os
import shlex
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

from pipeline.beam import beam_patches, runners, steps
from pipeline.config import RunnerConfig
from pipeline.errors import InputError
from pipeline.preparation import timings
from pipeline.preparation.plan import make_plan, unpack
from pipeline.preparation.shuffle import ENDING, ShuffleLayout
from tests.support import forked
from tests.support.preparing import vocabulary
from tests.support.refusals import refused
from tests.support.runs import configured

PATCHES = "pipeline/beam/beam_patches.py"


@pytest.mark.parametrize("version", ["2.76.0", "2.78.0", "3.0.0"])
def test_another_version_is_refused_at_the_start(version, monkeypatch):
    monkeypatch.setattr(apache_beam, "__version__", version)
    with (
        refused(InputError, "pip install", key="apache-beam"),
        runners.start(RunnerConfig(), ShuffleLayout.choose(1, 1, 1, 1)),
    ):
        pass


def test_the_version_is_the_one_that_is_installed_with_the_project(root):
    beam_patches.apply()
    wanted = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    major, minor = beam_patches.VERSION.split(".")
    assert f"apache-beam>={beam_patches.VERSION},<{major}.{int(minor) + 1}" in wanted


def test_ports_that_beam_asks_for_are_on_loopback_alone():
    beam_patches.apply()
    server = grpc.server(ThreadPoolExecutor(1))
    port = f"{server.add_insecure_port('[::]:0'):04X}"
    server.start()
    lines = (line for name in ("tcp", "tcp6") for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:])
    listens = {line.split()[1].partition(":")[0] for line in lines if line.split()[1].endswith(f":{port}")}
    server.stop(0)
    assert listens
    assert listens <= {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def test_one_file_replaces_attributes_of_beam_and_grpc_and_reads_private_ones(root):
    found = set()
    for path in (root / "pipeline" / "beam").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                private = node.attr.startswith("_") and not node.attr.startswith("__")
                patched = isinstance(node.ctx, ast.Store) and ast.unparse(node.value) in {"grpc", "worker_handlers"}
                if patched or (private and ast.unparse(node.value) not in {"self", "cls", "sys"}):
                    found.add(path.relative_to(root).as_posix())
    assert found == {PATCHES}


def test_a_worker_that_does_not_end_with_the_work_is_killed():
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


def lost_bytes(limit):
    """What Beam's stream between stages loses in a fifth of a second, flushed after `limit` ms."""
    sent = []

    def send(data):
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


def test_the_guard_is_against_a_real_loss():
    """Where the first line fails, Beam has been mended, and the guard can go."""
    assert lost_bytes(1) > 0
    beam_patches.apply()
    assert lost_bytes(worker_handlers.DATA_BUFFER_TIME_LIMIT_MS) == 0


# Engines run a task again where they believe its worker dead: attempts at once do no harm.


PROCESSES, ATTEMPTS = 4, 15


@pytest.fixture
def plan(tmp_path):
    """Return the plan for a corpus of one split and one bucket."""
    pytest.importorskip("rensa")
    vocabulary(tmp_path / "vocab", ["words", "."])
    (tmp_path / "a.txt").write_text("\n\n".join(f"Words {n}.\nMore words." for n in range(500)))
    words = shlex.split(
        f"+corpus=lines corpus.path={tmp_path}/a.txt vocab={tmp_path}/vocab out={tmp_path}/out "
        "minimum_characters=0 validation_share=0 filters.near_duplicates=0.9"
    )
    work = make_plan(configured("prepare", *words), tmp_path / "out")
    work.scratch.mkdir(parents=True)
    work.claim()
    return work


def attempt(plan, packet, times):
    """Run every task of the plan, as a worker does."""
    tokenize, (element,) = steps.Tokenize(plan), unpack(packet)
    tokenize.setup()
    for _ in range(times):
        left = [each for each in tokenize.process(element) if isinstance(each, tuple)]
        assert [task for task, _ in left] == [0]
        list(steps.WriteShards(plan).process((0, [part for _, part in left])))


def content(plan):
    files = [*Path(plan.out).glob("*.arrow"), *plan.scratch.iterdir()]
    shown = [
        path
        for path in files
        if not path.name.startswith(".") and path.suffix not in (".progress", ENDING, timings.ENDING)
    ]
    return {path.name: path.read_bytes() for path in shown}


@pytest.mark.slow
def test_attempts_at_once_never_show_a_reader_other_bytes(plan):
    (packet,) = plan.packets()
    attempt(plan, packet, 1)
    expected = content(plan)
    assert {"train-00000-of-00001.arrow", "read-00000.json"} < set(expected)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=attempt, args=(plan, packet, ATTEMPTS)) for _ in range(PROCESSES)]
    for worker in workers:
        worker.start()
    looks = 0
    try:
        while any(worker.is_alive() for worker in workers):
            assert content(plan) == expected
            looks += 1
    finally:
        for worker in workers:
            worker.join()
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    assert looks > 10
    left = [path.name for path in (*plan.scratch.iterdir(), *Path(plan.out).iterdir())]
    assert not [name for name in left if name.endswith(".tmp")]


# Beam is imported without what it would bring for its other uses.


PROGRAM = """
import sys
import pyarrow
import pipeline.beam.steps
pyarrow.array(["a"])
unused = ("boto3", "botocore", "bson", "charset_normalizer", "httplib2", "pandas", "pymongo",
          "pyparsing", "requests", "urllib3")
print([name for name in unused if name in sys.modules])
import boto3
print(boto3.__name__)
from apache_beam.internal import http_client
print(type(http_client.get_new_http()).__module__)
"""


def test_other_clients_are_not_imported_and_can_be_later():
    done = forked.fresh("-c", PROGRAM, check=True)
    assert done.stdout.split() == ["[]", "boto3", "httplib2"]


@pytest.mark.parametrize("dataflow", [False, True])
def test_clients_of_stores_are_not_imported_but_for_dataflow(root, tmp_path, dataflow):
    for name in ("azure/core/exceptions", "azure/storage/blob", "google/cloud/storage"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("import requests.adapters, requests\n")
    for name in ("azure", "azure/core", "azure/storage"):
        (tmp_path / name / "__init__.py").write_text("")
    if dataflow:
        (tmp_path / "apitools").mkdir()
        (tmp_path / "apitools" / "__init__.py").write_text("import google.cloud.storage\n")
    program = """
import sys
import pipeline.prepare
print([name for name in ("azure", "google.cloud.storage", "requests") if name in sys.modules])
import azure.core.exceptions, azure.storage.blob, google.cloud.storage
"""
    done = forked.fresh("-c", program, env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"{['google.cloud.storage', 'requests'] if dataflow else []}\n"


def test_a_client_that_beam_finds_installed_may_need_them_at_once(root, tmp_path):
    """As Google's does, which comes with Beam's extra for Dataflow."""
    package = tmp_path / "google" / "api_core"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import requests.adapters, requests\n")
    program = """
import sys
import pipeline.beam.fast_import
assert "requests.adapters" in sys.modules
import requests, requests.adapters
print(requests.adapters is sys.modules["requests"].adapters, requests.Session.__module__)
"""
    done = forked.fresh("-c", program, env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["True", "requests.sessions"]
