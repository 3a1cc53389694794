"""A stage in an object store: made once, whole or not there, and read by its checksums."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.common import parallel
from pipeline.config import CorpusConfig, DownloadConfig, DownloadFile, TasksConfig
from pipeline.errors import InputError, StoreError
from pipeline.records.manifest import MANIFEST, Manifest, Result
from pipeline.stages import fetch_inputs, stage
from pipeline.stages.fingerprints import fingerprint_path
from pipeline.storage import lease
from pipeline.storage.stores.remote_file import LARGEST, parse
from tests.pipeline.stages.one_more_run import CutOff, resumed
from tests.support import objects
from tests.support.refusals import refused
from tests.support.servers import s3_server

pytestmark = pytest.mark.store

CORPUS = CorpusConfig(name="c", reader="books", files=[DownloadFile(url="http://127.0.0.1/a")])
BIG = os.urandom(LARGEST + 1000)  # of more than one request


class Maker:
    """Writes a few files, and counts how often it is asked."""

    def __init__(self, files):
        self.calls, self.files = 0, files

    def __call__(self, config, out):
        self.calls += 1
        for name, data in self.files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(data)
        return Result(summary=f"made in {out.parent}", figures={"place": str(out.parent)})


def download(bucket, mirror, **more):
    return DownloadConfig(corpus=CORPUS, out=f"{bucket}/run/download", mirror=str(mirror), **more)


def tasks(bucket, mirror, **more):
    values = {"corpus": CORPUS, "source": f"{bucket}/run/download", "out": f"{bucket}/run/tasks", "mirror": str(mirror)}
    return TasksConfig(**(values | more))


def names(address):
    start = len(parse(address)[1]) + 1
    return {info.key[start:] for info in objects.below(address)}


def test_a_stage_in_a_store_is_known_elsewhere_without_its_data(bucket, store, tmp_path):
    make = Maker({"big.bin": BIG, "deep/small.txt": b"small"})
    made = stage.run("download", download(bucket, tmp_path / "a"), make)
    assert names(f"{bucket}/run/download") == {"big.bin", "deep/small.txt", MANIFEST}
    assert made.figures["place"] == f"{bucket}/run"
    assert str(tmp_path) not in made.summary

    store.requests.clear()
    again = stage.run("download", download(bucket, tmp_path / "b"), make)
    assert (again, make.calls) == (made, 1)
    assert not [path for method, path in store.requests if "big.bin" in path]
    assert not list((tmp_path / "b").rglob("big.bin"))


def test_an_input_of_which_no_file_is_read_has_its_manifest(bucket, store, tmp_path):
    """As sample tasks and a dump have in the pod that makes the report."""
    made = stage.run("download", download(bucket, tmp_path / "a"), Maker({"dump.bz2": b"text"}))
    place = fetch_inputs.fetch_input(tmp_path / "b", f"{bucket}/run/download", "stages.0", fetch_inputs.READS["report"])
    assert Manifest.read(place) == made
    assert [path.name for path in place.iterdir()] == [MANIFEST]


def test_an_input_is_fetched_once_and_by_its_checksum(bucket, store, tmp_path):
    stage.run("download", download(bucket, tmp_path / "a"), Maker({"big.bin": BIG}))
    read = []

    def make(config, out):
        read.append(Path(config.source, "big.bin").read_bytes())
        assert Path(config.out).parent == out.parent
        return Result(summary="read", figures={})

    stage.run("tasks", tasks(bucket, tmp_path / "b"), make)
    gets = store.count("GET")
    store.requests.clear()
    stage.run("tasks", tasks(bucket, tmp_path / "b", seed=1), make)
    assert read == [BIG, BIG]
    assert not [path for method, path in store.requests if method == "GET" and "big" in path]
    assert gets


def test_the_manifest_of_an_input_is_there_at_any_time(bucket, tmp_path, monkeypatch):
    """A rank fetches an input while another one, which has fetched it, reads it."""
    stage.run("download", download(bucket, tmp_path / "a"), Maker({"a.txt": b"a"}))
    place, there = f"{bucket}/run/download", list[bool]()
    fetch_inputs.fetch_input(tmp_path / "b", place, "source")
    write = Manifest.write

    def noted(self, folder):
        there.append((folder / MANIFEST).exists())
        write(self, folder)

    monkeypatch.setattr(Manifest, "write", noted)
    fetch_inputs.fetch_input(tmp_path / "b", place, "source")
    assert there == [True]


@pytest.mark.parametrize("part", ["", "/checkpoints/run/step"])
def test_bytes_that_are_not_those_of_the_manifest_are_refused(bucket, tmp_path, part):
    stage.run("download", download(bucket, tmp_path / "a"), Maker({f".{part}/a.txt": b"right"}))
    place, make = f"{bucket}/run/download", Maker({})
    objects.put(f"{place}{part}/a.txt", b"wrong")
    found = objects.read(f"{place}/{MANIFEST}")
    objects.put(f"{place}/{MANIFEST}", found[0])  # it is newer: nothing tells that the file was replaced
    with refused(StoreError, path=f"{place}{part}/a.txt"):
        stage.run("tasks", tasks(bucket, tmp_path / "b", source=f"{place}{part}"), make)
    assert make.calls == 0


def refuse(store, name, after=0):
    """Let the store refuse to take objects of this name, but the first ones."""
    count = itertools.count()
    store.fault = lambda method, path, number: (
        403 if method in ("PUT", "POST") and name in path and next(count) >= after else None
    )


def test_what_is_put_is_put_once_and_no_other_result_counts_meanwhile(bucket, store, tmp_path):
    objects.put(f"{bucket}/text/a.txt", b"a")

    def run(machine, seed):
        config = tasks(bucket, tmp_path / machine, source=f"{bucket}/text", seed=seed)
        stage.run("tasks", config, Maker({"a.txt": b"%d" % seed}))

    refuse(store, MANIFEST, 2)
    with pytest.raises(StoreError):
        run("a", 0)
    refuse(store, ".txt")
    run("a", 0)
    refuse(store, MANIFEST, 1)
    with pytest.raises(StoreError):
        run("b", 1)
    refuse(store, "nothing")
    run("a", 0)
    refuse(store, ".txt")
    with pytest.raises(StoreError):
        run("b", 1)
    assert Manifest.read(f"{bucket}/run/tasks") is None


@pytest.mark.parametrize("force", [False, True])
def test_what_no_stage_made_is_not_lost(bucket, tmp_path, force):
    objects.put(f"{bucket}/run/download/thesis.txt", b"years of work")
    with refused(InputError, key="out"):
        stage.run("download", download(bucket, tmp_path / "a", force=force), Maker({"a.txt": b"a"}))
    assert names(f"{bucket}/run/download") == {"thesis.txt"}


def test_files_that_no_stage_made_may_be_inputs(bucket, tmp_path):
    objects.put(f"{bucket}/text/a.txt", b"a")
    objects.put(f"{bucket}/text/deep/b.txt", b"b")
    folder = fetch_inputs.fetch_input(tmp_path, f"{bucket}/text", "data")
    assert {p.name: p.read_bytes() for p in folder.rglob("*.txt")} == {"a.txt": b"a", "b.txt": b"b"}
    assert fingerprint_path(folder) == fingerprint_path(f"{bucket}/text")
    assert fetch_inputs.fetch_input(tmp_path, f"{bucket}/text/a.txt", "vocab").read_bytes() == b"a"
    objects.delete([f"{bucket}/text/deep/b.txt"])
    assert [path.name for path in fetch_inputs.fetch_input(tmp_path, f"{bucket}/text", "data").rglob("*.*")] == [
        "a.txt"
    ]
    with refused(InputError, key="data"):
        fetch_inputs.fetch_input(tmp_path, f"{bucket}/nothing", "data")


def test_a_part_of_a_stages_folder_is_an_input_too(bucket, tmp_path):
    make = Maker({"model/a.txt": b"a", "other/b.txt": b"b"})
    stage.run("download", download(bucket, tmp_path / "a"), make)
    folder = fetch_inputs.fetch_input(tmp_path / "b", f"{bucket}/run/download/model", "data")
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    assert not list((tmp_path / "b").rglob("b.txt"))


def test_logs_are_put(bucket, tmp_path):
    logs = fetch_inputs.local_place(f"{bucket}/run/logs", str(tmp_path))
    logs.mkdir(parents=True)
    (logs / "vocab.log").write_text("said")
    fetch_inputs.put_logs(f"{bucket}/run", str(tmp_path))
    assert names(f"{bucket}/run/logs") == {"vocab.log"}


@pytest.fixture
def short(monkeypatch):
    """Let locks be renewed every second."""
    monkeypatch.setattr(lease, "LEASE", 4.0)


@pytest.mark.usefixtures("short")
def test_two_runs_in_one_folder_are_refused_by_name(bucket):
    with fetch_inputs.lock_run(f"{bucket}/run"):
        with refused(InputError, key="workdir") as caught, fetch_inputs.lock_run(f"{bucket}/run"):
            raise AssertionError
        assert str(os.getpid()) in str(caught.value)
    with fetch_inputs.lock_run(f"{bucket}/run"):
        pass
    assert names(f"{bucket}/run") == set()


def test_the_lock_of_a_killed_process_of_this_machine_is_taken_over(bucket, root, store):
    script = (
        "import os, signal; from pipeline.storage import lease; "
        f"lease.Lease('{bucket}/run/.lock', 'workdir').take(False); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=root, check=False).returncode == -signal.SIGKILL
    assert names(f"{bucket}/run") == {".lock"}
    with fetch_inputs.lock_run(f"{bucket}/run"):
        pass


@pytest.mark.usefixtures("short")
def test_a_lock_that_is_not_renewed_is_taken_over(bucket):
    objects.put(f"{bucket}/run/.lock", b'{"host": "gone", "pid": 1, "token": "t"}')
    with fetch_inputs.lock_run(f"{bucket}/run"):
        one = lease.Lease(f"{bucket}/run/.lock", "workdir")
        with pytest.raises(InputError):
            one.take(False)


@pytest.mark.usefixtures("short")
def test_of_many_one_gets_the_lock(bucket):
    got = []

    def try_it(_):
        one = lease.Lease(f"{bucket}/run/.lock", "workdir")
        try:
            one.take(False)
        except InputError:
            return
        got.append(one)

    parallel.each(try_it, range(8))
    assert len(got) == 1
    got[0].release()


@pytest.mark.skipif(s3_server.GATEWAY in os.environ, reason="versitygw checks signatures")
def test_a_store_without_conditions_is_named(bucket, store, capfd):
    if not bucket.startswith("s3://"):
        pytest.skip("its conditions are part of the address, or of what is signed")
    store.dropped = {"if-none-match", "if-match"}
    with fetch_inputs.lock_run(f"{bucket}/run"):
        pass
    assert "warning: " in capfd.readouterr().err


def test_a_file_that_an_input_has_lost_is_read_no_more(bucket, tmp_path):
    for files in ({"a.txt": b"a", "b.txt": b"b"}, {"a.txt": b"a"}):
        stage.run("download", download(bucket, tmp_path / "a", force=True), Maker(files))
        folder = fetch_inputs.fetch_input(tmp_path / "b", f"{bucket}/run/download", "source")
        assert {path.name for path in folder.iterdir()} == {*files, MANIFEST}


def test_a_forced_stage_goes_on_on_another_machine(bucket, tmp_path):
    out = f"{bucket}/run/evaluate"
    for first, second in (("a", "b"), ("c", "d")):
        with pytest.raises(CutOff):
            resumed(out, tmp_path / first, fail=True, force=True)
        assert resumed(out, tmp_path / second, fail=False) == 1
    assert names(out) == {"runs/0.txt", "runs/1.txt", MANIFEST}
