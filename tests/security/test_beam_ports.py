"""Nobody else on the machine, or in the network, has Beam's workers run code of theirs."""

import json
import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from pipeline.beam import beam_patches, pool
from pipeline.beam.fast_import import fn_messages, fn_services
from pipeline.beam.runners import loopback, service
from pipeline.config import RunnerConfig
from tests.support import forked

LISTENING = """
import os, sys
from pathlib import Path
from pipeline.beam import runners
from pipeline.beam.fast_import import beam
from pipeline.config import RunnerConfig

def places(pid):
    nodes = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            nodes.add(os.readlink(path))
        except OSError:
            pass
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in nodes:
                found.append(words[1].split(":")[0])
    return found

runner = RunnerConfig(name="local", workers=int(sys.argv[2]))
driver = os.getpid()
from pipeline.preparation.shuffle import ShuffleLayout
step = beam.Map(lambda n: Path(sys.argv[1], str(n)).write_text(" ".join(places(driver))))
with (
    runners.start(runner, ShuffleLayout.choose(1, 1, 1, 1)) as (engine, flags),
    beam.Pipeline(runner=engine, options=flags) as pipeline,
):
    pipeline | beam.Create([1, 2]) | beam.Reshuffle() | step
"""
# 127.0.0.1, ::1 and ::ffff:127.0.0.1, as the kernel writes them.
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "ports"), [(1, 0), (2, 4)])
def test_the_local_runner_listens_on_loopback_alone(root, tmp_path, workers, ports):
    script = LISTENING.replace("sys.argv[1]", repr(str(tmp_path)))
    script = script.replace("sys.argv[2]", str(workers))
    done = forked.fresh("-c", script, env={**os.environ, "PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stderr
    places = (tmp_path / "1").read_text().split()
    assert bool(places) == bool(ports)
    assert len(places) >= ports
    assert set(places) <= LOOPBACK


@pytest.mark.parametrize("asked", ["[::]:0", "localhost:0"])
def test_a_server_of_this_process_listens_on_loopback(asked):
    """That of a job service too, which asks for all addresses: a job replaces gRPC's."""
    beam_patches.apply()
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port(asked)
    server.start()
    with socket.create_connection(("localhost", port)):
        kinds = [Path(f"/proc/self/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    places = [line.split()[1] for line in kinds[0] + kinds[1] if line.split()[3] == "0A"]
    server.stop(0)
    assert {place.split(":")[0] for place in places if place.endswith(f":{port:04X}")} <= LOOPBACK


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder in which this user's programs keep files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(pool.SECRET, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def port(cache):
    """That of a pool of this user."""
    workers, server, port = pool.serve("localhost:0", pool.secret())
    yield port
    workers.stop()
    server.stop(0)


def start(port, **params):
    """Ask for a worker of a service that is not there; return the answer's error."""
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        request = fn_messages.StartWorkerRequest(worker_id="1", params=params)
        request.control_endpoint.url = "localhost:1"
        stub = fn_services.BeamFnExternalWorkerPoolStub(channel)
        return str(stub.StartWorker(request).error)


@pytest.mark.parametrize("given", [None, "", "wrong", "é"])
def test_a_pool_starts_no_worker_without_its_secret(port, given, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("started")

    monkeypatch.setattr(pool.subprocess, "Popen", refuse)
    assert pool.SECRET in start(port, **({} if given is None else {"secret": given}))


class Engine(fn_services.BeamFnControlServicer):
    """An engine that has no work for its worker, which therefore waits."""

    def Control(self, request_iterator, context):
        for _ in request_iterator:
            yield from ()


def test_a_worker_is_stopped_only_by_who_started_it(cache):
    workers, server, port = pool.serve("localhost:0", pool.secret())
    engine = grpc.server(ThreadPoolExecutor(1))
    fn_services.add_BeamFnControlServicer_to_server(Engine(), engine)
    place = f"localhost:{engine.add_insecure_port('localhost:0')}"
    engine.start()
    request = fn_messages.StartWorkerRequest(worker_id="1", params={"secret": pool.secret()})
    request.control_endpoint.url = place
    own, other = (grpc.insecure_channel(f"localhost:{port}", [("grpc.use_local_subchannel_pool", 1)]) for _ in "ab")
    with own, other:
        mine, stranger = map(fn_services.BeamFnExternalWorkerPoolStub, (own, other))
        assert mine.StartWorker(request).error == ""
        ((_, _, worker),) = workers.workers
        stranger.StopWorker(fn_messages.StopWorkerRequest(worker_id="1"))
        assert workers.workers
        assert worker.returncode is None
        mine.StopWorker(fn_messages.StopWorkerRequest(worker_id="1"))
        assert worker.returncode is not None
    engine.stop(0)
    server.stop(0)


def test_the_secret_of_a_user_is_made_once_and_readable_by_no_other(cache):
    made = pool.secret()
    assert (len(made), pool.secret()) == (32, made)
    (file,) = cache.rglob("*.secret")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_environment_has_another_secret_where_machines_differ(cache, monkeypatch):
    monkeypatch.setenv(pool.SECRET, "of two machines")
    assert pool.secret() == "of two machines"
    assert not cache.exists()


@pytest.mark.parametrize("config", ["here:5000", '{"url": "here:5000"}', '{"url": "here:5000", "params": {"a": "b"}}'])
def test_a_service_gets_the_secret_for_its_pool(cache, config):
    options = {"environment_type": "EXTERNAL", "environment_config": config}
    _, flags = service(RunnerConfig(name="spark", options=options), {}, None)
    found = json.loads(flags.get_all_options()["environment_config"])
    assert (found["url"], found["params"]["secret"]) == ("here:5000", pool.secret())
    assert ("a" in found["params"]) == ("params" in config)


def test_the_pool_of_a_run_has_a_secret_of_its_own(cache):
    with loopback() as (flags, _):
        found = json.loads(flags["environment_config"])
        host, _, port = found["url"].partition(":")
        assert host == "localhost"
        assert pool.SECRET in start(int(port))
    assert len(found["params"]["secret"]) == 32
    assert not cache.exists()
