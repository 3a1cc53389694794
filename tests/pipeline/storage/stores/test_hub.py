"""Files of the hub are read by ranges at one commit; a hub that fails costs time, never bytes."""

import os
import random

import pytest

from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError, Exit, Restart, StoreError
from pipeline.readers import ReadLog, open_corpus
from pipeline.storage import places
from tests.pipeline.storage.reads import read_in_any_order
from tests.support import forked
from tests.support.refusals import refused
from tests.support.servers.hub_server import environment, server

DATA = random.Random(1).randbytes(5_000_000)
TOP = "hf://datasets/some/texts"


@pytest.fixture
def hub(tmp_path):
    with server() as made, environment(made, str(tmp_path / "home")):
        made.commit({"data/big.bin": DATA})
        yield made


def big(hub):
    return places.at(f"{TOP}@{hub.branches['main']}/data/big.bin")


def test_any_way_to_read_gives_the_bytes(hub):
    read_in_any_order(big(hub), DATA)


def test_a_look_at_the_beginning_does_not_fetch_the_file(hub):
    with big(hub).open() as file:
        file.read(8)
    spans = [h["range"] for _, path, h in hub.requests if path.startswith("/content/")]
    assert len(spans) == 1
    assert int(spans[0].rpartition("-")[2]) < len(DATA) * 3 // 5


def test_a_token_goes_to_the_hub_and_not_where_it_redirects(hub, monkeypatch):
    hub.token = "hf_right"
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    big(hub).read_bytes()
    tokens = {path[:5]: h.get("authorization") for _, path, h in hub.requests}
    assert tokens == {"/api/": "Bearer hf_right", "/data": "Bearer hf_right", "/cont": None}


def test_a_listing_of_several_pages_is_complete(hub):
    names = [f"{folder}/{number}.txt" for folder in ("a", "a/b", "c") for number in range(5)]
    sha = hub.commit({name: name.encode() for name in names})
    found = places.below(places.at(f"{TOP}@{sha}"))
    assert sorted(str(file) for file in found) == sorted(f"{TOP}@{sha}/{name}" for name in names)
    matched = places.matching(f"{TOP}@{sha}/a/*.txt")
    assert [file.name for file in matched] == [f"{number}.txt" for number in range(5)]
    assert [file.read_bytes() for file in found] == [str(f)[len(TOP) + 42 :].encode() for f in found]


@pytest.mark.parametrize("fault", [(500, {}), (503, {}), (429, {}), (429, {"Retry-After": "1"}), "cut"], ids=str)
def test_faults_that_pass_cost_no_byte(hub, fault):
    hub.fault = lambda path, number: fault if number % 4 == 0 else None
    assert big(hub).read_bytes() == DATA


def test_a_hub_that_stays_away_asks_for_a_restart(hub, monkeypatch):
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "1")
    file = big(hub)
    assert file.stat().st_size == len(DATA)
    hub.fault = lambda path, number: (503, {})
    with pytest.raises(Restart):
        file.read_bytes()


@pytest.mark.parametrize("header", [{"Retry-After": "3600"}, {"RateLimit": '"api";r=0;t=3600'}])
def test_a_pause_longer_than_the_patience_is_not_waited_for(hub, header):
    hub.fault = lambda path, number: (429, header)
    with pytest.raises(Restart):
        big(hub).read_bytes()


def test_an_outage_is_no_broken_document(hub, monkeypatch):
    hub.commit({"books/a.txt": b"one two three " * 9})
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "1")
    corpus = CorpusConfig(name="c", reader="text", path=f"{TOP}/books", on_error="skip")
    reader = open_corpus(corpus, "")
    (split,) = reader.splits(1 << 20)
    hub.fault = lambda path, number: (503, {}) if path.startswith("/content/") else None
    with pytest.raises(Restart):
        list(reader.read(split, ReadLog("skip")))


def test_a_proxy_that_ignores_ranges_is_refused(hub):
    hub.fault = lambda path, number: "whole"
    with pytest.raises(StoreError, match="range"):
        big(hub).read_bytes()


def test_a_branch_is_the_commit_that_it_was(hub):
    place = places.pin_revision(f"{TOP}/data/big.bin")
    assert place == f"{TOP}@{hub.branches['main']}/data/big.bin"
    hub.commit({"data/big.bin": DATA[::-1]})
    assert (places.at(place).read_bytes(), places.pin_revision(place)) == (DATA, place)


def test_a_tag_or_quoted_branch_is_resolved(hub):
    sha = hub.commit({"a.txt": b"a"}, branch="some/branch")
    assert places.pin_revision(f"{TOP}@some%2Fbranch/a.txt") == f"{TOP}@{sha}/a.txt"


@pytest.mark.parametrize(
    ("address", "word"), [("hf://datasets/some/other/a.txt", "data set"), (f"{TOP}@gone/a.txt", "branch")]
)
def test_what_is_missing_is_named(hub, address, word):
    with refused(StoreError, word, path=address) as caught:
        places.pin_revision(address)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["hf://some/model/a", "hf://datasets/x", "hf://buckets/a/b/c"])
def test_other_addresses_are_refused(hub, address):
    with pytest.raises(ConfigError):
        places.pin_revision(address)
    assert not hub.requests


def test_a_missing_file_is_no_file(hub):
    top = f"{TOP}@{hub.branches['main']}"
    assert places.matching(f"{top}/data/none.txt") == []
    assert places.matching(f"{top}/nowhere/*.txt") == []
    assert not places.is_folder(places.at(f"{top}/nowhere"))
    assert places.is_folder(places.at(f"{top}/data"))
    with pytest.raises(FileNotFoundError):
        places.at(f"{top}/data/none.txt").open()


def test_an_expired_token_is_named(hub, monkeypatch):
    file = big(hub)
    assert file.stat().st_size == len(DATA)
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    for ask in (lambda: places.pin_revision(f"{TOP}/data"), file.read_bytes):
        with pytest.raises(StoreError, match="HF_TOKEN") as caught:
            ask()
        assert "hf_expired" not in str(caught.value)


def test_a_gated_data_set_names_its_page(hub, monkeypatch):
    hub.gated, hub.token = True, "hf_right"
    with pytest.raises(StoreError, match="gated") as caught:
        big(hub).read_bytes()
    assert "https://huggingface.co/datasets/some/texts" in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert big(hub).read_bytes() == DATA


def test_a_command_ends_at_once_with_its_code(hub, tmp_path):
    hub.fault = lambda path, number: (503, {})
    words = ["+corpus=text", f"corpus.path={TOP}/data", f"workdir={tmp_path}", "vocab=none"]
    done = forked.fresh("-m", "pipeline.prepare", *words, env=os.environ | {"BERT_STORE_TIMEOUT": "1"}, timeout=120)
    assert (done.returncode, done.stderr.count("\n")) == (Exit.RESTART, 1)
