"""A store that fails costs time, never documents or wrong bytes."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from pipeline.common import s3, storage
from pipeline.common.errors import Exit, Restart, StoreError
from pipeline.config import CorpusConfig
from pipeline.readers import SkipCounts, open_corpus
from pipeline.tokenization.wordpiece import SPECIAL, build
from tests.pipeline.common.reads import read_in_any_order
from tests.pipeline.store_proxy import Proxy, proxy

pytestmark = pytest.mark.slow

DATA = random.Random(1).randbytes(3_000_000)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    """A real S3 server of this machine."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    yield moto.get_host_and_port()
    moto.stop()


@pytest.fixture
def store(server: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The server behind a proxy, to which the environment points."""
    with proxy(*server) as state:
        for key, value in {
            "AWS_ENDPOINT_URL": state.url, "AWS_ACCESS_KEY_ID": "key", "STORE_TIMEOUT": "60",
            "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():  # fmt: skip
            monkeypatch.setenv(key, value)
        s3._client.cache_clear()
        yield state
    s3._client.cache_clear()


@pytest.fixture
def bucket(server: tuple[str, int], store: Proxy) -> Any:
    """A bucket, reached past the proxy."""
    host, port = server
    made = boto3.resource(
        "s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1"
    ).Bucket("faults")
    made.create()
    made.put_object(Key="data", Body=DATA)
    return made


def test_any_way_to_read_gives_the_bytes(bucket: Any) -> None:
    read_in_any_order(storage.at("s3://faults/data"), DATA)


def test_a_look_at_the_beginning_does_not_fetch_the_file(bucket: Any, store: Proxy) -> None:
    with storage.at("s3://faults/data").open() as file:
        file.read(8)
    assert (store.count("HEAD"), store.count("GET")) == (1, 1)


@pytest.mark.parametrize("fault", [500, 503, 429, "cut"])
def test_faults_that_pass_cost_no_byte(bucket: Any, store: Proxy, fault: int | str) -> None:
    gets = iter(range(1000))
    store.fault = lambda method, path, number: (
        fault if method == "GET" and next(gets) % 3 != 2 else None
    )
    assert storage.at("s3://faults/data").read_bytes() == DATA


def test_a_store_that_stays_away_asks_for_a_restart(
    bucket: Any, store: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_TIMEOUT", "1")
    file = storage.at("s3://faults/data")
    assert file.stat().st_size == len(DATA)
    store.fault = lambda method, path, number: 503
    with pytest.raises(Restart, match="s3://faults/data"):
        file.read_bytes()


def test_two_versions_of_an_object_never_mix(bucket: Any, store: Proxy) -> None:
    file = storage.at("s3://faults/data")
    with file.open() as opened:
        opened.read(1000)
        bucket.put_object(Key="data", Body=DATA[::-1])  # of the same size
        with pytest.raises(StoreError) as caught:
            opened.read()
    assert caught.value.path == "s3://faults/data"


@pytest.mark.parametrize("change", ["put", "delete"])
def test_an_object_that_changes_after_the_plan_is_no_broken_document(
    bucket: Any, change: str
) -> None:
    for number in range(3):
        bucket.put_object(Key=f"texts/{number}.txt", Body=b"one two three " * 9)
    corpus = CorpusConfig(name="c", reader="text", path="s3://faults/texts", on_error="skip")
    reader = open_corpus(corpus, "")
    (split,) = reader.splits(1 << 20)
    if change == "put":
        bucket.put_object(Key="texts/1.txt", Body=b"six five four " * 9)
    else:
        bucket.Object("texts/1.txt").delete()
    with pytest.raises(StoreError):
        list(reader.read(split, SkipCounts("skip")))


def test_an_outage_drops_no_document(
    bucket: Any, store: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put_object(Key="books/a.txt", Body=b"one two three " * 9)
    corpus = CorpusConfig(name="c", reader="text", path="s3://faults/books", on_error="skip")
    reader = open_corpus(corpus, "")
    (split,) = reader.splits(1 << 20)
    monkeypatch.setenv("STORE_TIMEOUT", "1")
    store.fault = lambda method, path, number: 503 if method == "GET" else None
    with pytest.raises(Restart):
        list(reader.read(split, SkipCounts("skip")))


def test_many_small_files_are_listed_once(bucket: Any, store: Proxy) -> None:
    for number in range(40):
        bucket.put_object(Key=f"many/{number}.txt", Body=b"some words here")
    reader = open_corpus(CorpusConfig(name="c", reader="text", path="s3://faults/many"), "")
    (split,) = reader.splits(1 << 20)
    assert len(list(reader.read(split, SkipCounts()))) == 40
    assert store.count("HEAD") <= 4
    objects = [path for method, path in store.requests if method == "GET" and ".txt" in path]
    assert len(objects) == 40


@pytest.mark.parametrize("name", ["br[1]ack.txt", "sp ace.txt", "ünï.txt", "a+b%#?&*.txt"])
def test_odd_names_are_read(bucket: Any, name: str) -> None:
    bucket.put_object(Key=f"odd/{name}", Body=b"odd")
    (found,) = storage.matching(f"s3://faults/odd/{name}")
    assert found.read_bytes() == b"odd"


def test_what_the_store_refuses_is_named(store: Proxy) -> None:
    with pytest.raises(StoreError, match="bucket"):
        storage.at("s3://nobody/x").is_dir()
    store.fault = lambda method, path, number: 403
    with pytest.raises(StoreError, match="403"):
        storage.at("s3://faults/x").is_file()


def test_no_keys_are_a_line(store: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "absent")
    with pytest.raises(StoreError, match="AWS_PROFILE"):
        storage.at("s3://faults/x").is_file()


def test_prepare_ends_with_one_line_when_the_store_goes_away(
    root: Path, bucket: Any, store: Proxy, tmp_path: Path
) -> None:
    """The plan is made, then the store fails: the exit code asks for the same command again."""
    lines = "\n\n".join(
        f"Document {n} has some words.\nAnd more of {n}, a second line of it." for n in range(400)
    )
    bucket.put_object(Key="lines/a.txt", Body=lines.encode())
    (tmp_path / "tokenizer.json").write_text(build([*SPECIAL, "document", "has", "a"]))
    words = [
        sys.executable, "-m", "pipeline.prepare", "+corpus=lines", f"vocab={tmp_path}",
        "corpus.path=s3://faults/lines/a.txt", f"out={tmp_path}/out", "validation_share=0",
    ]  # fmt: skip

    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, cwd=root, capture_output=True, text=True, check=False,
            env={**os.environ, "STORE_TIMEOUT": "2"},
        )  # fmt: skip

    gets = iter(range(10_000))
    store.fault = lambda method, path, number: (
        503 if method == "GET" and "a.txt" in path and next(gets) >= 1 else None
    )
    done = run()
    assert done.returncode == Exit.RESTART, done.stderr
    assert done.stderr.splitlines()[-1].startswith("stopped: s3://faults/lines/a.txt")
    assert not (tmp_path / "out").exists()
    store.fault = lambda method, path, number: None
    assert run().returncode == 0
