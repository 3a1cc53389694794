"""A store that fails costs time, never documents or wrong bytes."""

import os
import random
import subprocess
import sys

import pytest

from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError, Exit, Restart, StoreError
from pipeline.readers import ReadLog, open_corpus
from pipeline.storage import places
from pipeline.storage.checksums import sha256
from pipeline.storage.stores import retries
from pipeline.storage.stores.remote_file import LARGEST
from tests.pipeline.storage.reads import read_in_any_order
from tests.support import objects
from tests.support.preparing import vocabulary
from tests.support.refusals import refused
from tests.support.servers.store_proxy import RIGHT

pytestmark = pytest.mark.slow

DATA = random.Random(1).randbytes(3_000_000)


@pytest.fixture
def data(bucket):
    """An object of some megabytes, not looked at yet."""
    objects.put(f"{bucket}/data", DATA)
    return places.Remote(f"{bucket}/data")


def of_bytes(method, path):
    """Return whether a request is for the content of an object."""
    other = ("projection=", "list-type", "comp=list")
    return method == "GET" and not any(word in path for word in other)


def test_any_way_to_read_gives_the_bytes(data):
    read_in_any_order(data, DATA)


def test_a_look_at_the_beginning_does_not_fetch_the_file(data, store):
    store.requests.clear()
    with data.open() as file:
        file.read(8)
    assert [of_bytes(*request) for request in store.requests] == [False, True]


@pytest.mark.store
def test_bytes_that_are_damaged_on_the_way_are_sent_again(bucket, store):
    tries = iter(range(100))
    store.fault = lambda method, path, number: "damage" if next(tries) == 0 else None
    etag = objects.put(f"{bucket}/a", RIGHT)
    assert next(tries) > 1
    tries = iter(range(100))
    assert objects.read(f"{bucket}/a") == (RIGHT, etag)
    assert next(tries) > 1


@pytest.mark.parametrize("fault", [500, 503, 429, "cut"])
def test_faults_that_pass_cost_no_byte(data, store, fault):
    gets = iter(range(1000))
    store.fault = lambda method, path, number: fault if method == "GET" and next(gets) % 3 != 2 else None
    assert data.read_bytes() == DATA


def test_a_store_that_stays_away_asks_for_a_restart(data, store, monkeypatch):
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "1")
    assert data.stat().st_size == len(DATA)
    store.fault = lambda method, path, number: 503
    with pytest.raises(Restart, match=data.address):
        data.read_bytes()
    with pytest.raises(Restart, match=data.address):
        objects.put(data.address, b"other")


def test_a_connection_that_is_too_slow_is_given_up(data, monkeypatch):
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "1")
    monkeypatch.setattr(retries, "WINDOW", 0.0)
    monkeypatch.setattr(retries, "SLOWEST", 2**60)
    with pytest.raises(Restart, match="slower than"):
        data.read_bytes()


def test_two_versions_of_an_object_never_mix(data):
    with data.open() as opened:
        opened.read(1000)
        objects.put(data.address, DATA[::-1])  # of the same size
        with pytest.raises(StoreError) as caught:
            opened.read()
    assert caught.value.path == data.address


@pytest.mark.parametrize("change", ["put", "delete"])
def test_an_object_that_changes_after_the_plan_is_no_broken_document(bucket, change):
    for number in range(3):
        objects.put(f"{bucket}/texts/{number}.txt", b"one two three " * 9)
    corpus = CorpusConfig(name="c", reader="text", path=f"{bucket}/texts", on_error="skip")
    reader = open_corpus(corpus, "")
    (split,) = reader.splits(1 << 20)
    if change == "put":
        objects.put(f"{bucket}/texts/1.txt", b"six five four " * 9)
    else:
        objects.delete([f"{bucket}/texts/1.txt"])
    with pytest.raises(StoreError):
        list(reader.read(split, ReadLog("skip")))


def test_an_outage_drops_no_document(bucket, store, monkeypatch):
    objects.put(f"{bucket}/books/a.txt", b"one two three " * 9)
    corpus = CorpusConfig(name="c", reader="text", path=f"{bucket}/books", on_error="skip")
    reader = open_corpus(corpus, "")
    (split,) = reader.splits(1 << 20)
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "1")
    store.fault = lambda method, path, number: 503 if of_bytes(method, path) else None
    with pytest.raises(Restart):
        list(reader.read(split, ReadLog("skip")))


def test_many_small_files_are_listed_once(bucket, store):
    for number in range(40):
        objects.put(f"{bucket}/many/{number}.txt", b"some words here")
    store.requests.clear()
    reader = open_corpus(CorpusConfig(name="c", reader="text", path=f"{bucket}/many"), "")
    (split,) = reader.splits(1 << 20)
    assert len(list(reader.read(split, ReadLog()))) == 40
    read = [path for method, path in store.requests if of_bytes(method, path) and ".txt" in path]
    assert len(read) == 40
    assert len(store.requests) <= 40 + 8


@pytest.mark.store
def test_a_list_of_several_pages_is_whole_although_requests_fail(bucket, store):
    for number in range(7):
        objects.put(f"{bucket}/many/{number}", b"")
    store.requests.clear()
    store.fault = lambda method, path, number: 503 if number == 2 else None
    pages = objects.client(bucket).pages(f"{bucket}/many", "many/", 3)
    assert [info.key for page in pages for info in page] == [f"many/{n}" for n in range(7)]
    assert len(store.requests) == 4


@pytest.mark.parametrize("name", ["br[1]ack.txt", "sp ace.txt", "ünï.txt", "a+b%#?&*.txt"])
def test_odd_names_are_read(bucket, name):
    objects.put(f"{bucket}/odd/{name}", b"odd")
    (found,) = places.matching(f"{bucket}/odd/{name}")
    assert found.read_bytes() == b"odd"


def test_what_the_store_refuses_is_named(bucket, store):
    for use in (objects.below, lambda place: objects.put(place, b"x"), places.matching):
        with pytest.raises(StoreError, match=r"bucket|container") as caught:
            use(f"{bucket}-absent/x*")
        assert "\n" not in str(caught.value)
        with pytest.raises(StoreError, match=r"bucket|container"):
            use(f"{bucket.partition(':')[0]}:///x")
    store.fault = lambda method, path, number: 403
    with pytest.raises(StoreError, match="403"):
        places.at(f"{bucket}/x").is_file()


def test_a_write_on_a_condition_that_does_not_hold_changes_nothing(bucket):
    place = f"{bucket}/run/.lock"
    assert objects.put(place, b"0", "1") is None
    assert objects.read(place) is None
    first = objects.put(place, b"1", None)
    assert first is not None
    assert objects.put(place, b"2", None) is None
    second = objects.put(place, b"3", first)
    assert second not in (None, first)
    assert objects.put(place, b"4", first) is None
    assert objects.read(place) == (b"3", second)
    age = objects.age(place)
    assert -2 < age < 60
    objects.delete([place, f"{place}-absent"])
    assert (objects.read(place), objects.age(place), objects.head(place)) == (None, None, None)


@pytest.mark.parametrize("size", [LARGEST + 1, 2**26 + 2**20])
def test_a_large_file_is_put_and_fetched_although_requests_fail(bucket, store, tmp_path, size):
    (tmp_path / "large").write_bytes(random.Random(size).randbytes(size))
    checksum, place = sha256(tmp_path / "large"), f"{bucket}/large"
    seen = set()

    def fault(method, path, number):
        again = f"{method} {path}" in seen or method not in ("PUT", "GET")
        seen.add(f"{method} {path}")
        return None if again else 503

    store.fault = fault
    etag = objects.put_file(place, tmp_path / "large", checksum)
    info = objects.head(place)
    assert (info.size, info.etag) == (size, etag)
    assert objects.fetch(place, info, tmp_path / "fetched", checksum) == checksum


@pytest.mark.parametrize("size", [10, 2**25 + 1])
def test_a_file_that_changed_since_its_checksum_is_not_put(bucket, tmp_path, size):
    (tmp_path / "a").write_bytes(bytes(size))
    checksum = sha256(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"a" * size)
    with refused(StoreError, path=str(tmp_path / "a")):
        objects.put_file(f"{bucket}/a", tmp_path / "a", checksum)
    assert objects.head(f"{bucket}/a") is None


def test_prepare_ends_with_one_line_when_the_store_goes_away(root, bucket, store, tmp_path):
    """The plan is made, then the store fails: the exit code asks for the same command again."""
    lines = "\n\n".join(f"Document {n} has some words.\nAnd more of {n}, a second line of it." for n in range(400))
    objects.put(f"{bucket}/lines/a.txt", lines.encode())
    vocabulary(tmp_path, ["document", "has", "a"])
    places = [f"vocab={tmp_path}", f"corpus.path={bucket}/lines/a.txt", f"out={tmp_path}/out"]
    words = [sys.executable, "-m", "pipeline.prepare", "+corpus=lines", *places, "validation_share=0"]

    def run():
        return subprocess.run(
            words, cwd=root, capture_output=True, text=True, check=False, env={**os.environ, "BERT_STORE_TIMEOUT": "2"}
        )

    gets = iter(range(10_000))
    store.fault = lambda method, path, number: (
        503 if of_bytes(method, path) and "a.txt" in path and next(gets) >= 1 else None
    )
    done = run()
    assert done.returncode == Exit.RESTART, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"stopped: {bucket}/lines/a.txt")
    assert not (tmp_path / "out").exists()
    store.fault = lambda method, path, number: None
    assert run().returncode == 0


@pytest.mark.parametrize("typed", ["5m", "", "-1", "nan"])
def test_a_timeout_that_is_no_number_is_named(typed, monkeypatch):
    monkeypatch.setenv("BERT_STORE_TIMEOUT", typed)
    with refused(ConfigError, key="BERT_STORE_TIMEOUT"):
        retries.longest_wait()


PACKAGES = [("boto3", "s3", "s3"), ("google.cloud.storage", "gs", "gcs")]
PACKAGES += [("azure.storage.blob", "abfs", "azure"), ("azure.identity", "abfs", "azure")]


@pytest.mark.parametrize(("module", "scheme", "extra"), PACKAGES)
def test_a_missing_package_is_a_line(monkeypatch, module, scheme, extra):
    client = objects.CLIENTS[scheme]
    monkeypatch.setattr(client, "made", {})
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "a")
    monkeypatch.setitem(sys.modules, module, None)
    for use in (client.is_folder, client.read, places.matching):
        with pytest.raises(ConfigError, match=rf"-e '\.\[{extra}\]'") as caught:
            use(f"{scheme}://bucket/x*")
        assert "\n" not in str(caught.value)
