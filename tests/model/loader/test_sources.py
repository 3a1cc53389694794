"""Shards read through a cache of limited size give the batches of local files, in any order."""

import threading
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from model.config import DataConfig, ObjectiveConfig
from model.loader.loader import Loader
from model.loader.sources import CachedShards, ReadPlan
from pipeline.errors import ConfigError, Restart, StoreError
from pipeline.records.manifest import file_checksums
from pipeline.shards import open_folder
from pipeline.storage.checksums import sha256
from tests.model.loader.test_loader import TOKENIZER, join, same, write
from tests.support import finished, objects
from tests.support.refusals import refused

pytestmark = pytest.mark.store

ROWS = (40, 25, 60, 31, 44, 52)
WINDOW = 60  # rows: one or two shards
BATCH = 16
OBJECTIVE = ObjectiveConfig(name="test")


def prepare(folder, seed=0, rows=ROWS):
    """What `prepare` leaves."""
    folder.mkdir(parents=True)
    write(folder, rows, seed=seed)
    write(folder, (11,), "validation", seed=seed + 1)
    shards = [shard for split in ("train", "validation") for shard in open_folder(folder, split)]
    counted = {s.path.name: {"rows": s.rows, "tokens": s.tokens, "words": s.tokens} for s in shards}
    finished.manifest("prepare", files=file_checksums(folder, {}), figures={"shards": counted}).write(folder)


class Place:
    """The same shards on a disk and in a bucket; on this machine are the held-out ones alone."""

    def __init__(self, bucket, top, folders=1):
        self.top, self.addresses = top, dict[str, str]()
        self.whole = [top / "whole" / str(number) for number in range(folders)]
        for number, folder in enumerate(self.whole):
            prepare(folder, 10 * number)
            here = top / "here" / str(number)
            here.mkdir(parents=True)
            self.addresses[str(here)] = f"{bucket}/{number}"
            for path in folder.iterdir():
                objects.put(f"{bucket}/{number}/{path.name}", path.read_bytes())
                if not path.name.startswith("train-"):
                    (here / path.name).write_bytes(path.read_bytes())

    def local(self, **more):
        """The loader of the files on disk."""
        data = self.data([str(folder) for folder in self.whole], **more)
        return Loader(data, OBJECTIVE, TOKENIZER, 3, "train")

    def cached(self, size, **more):
        """The loader of the bucket."""
        data = self.data(list(self.addresses), cache=str(self.top / "cache"), cache_size=size, **more)
        cache = CachedShards(data, self.addresses)
        return Loader(data, OBJECTIVE, TOKENIZER, 3, "train", cache), cache

    def data(self, folders, **more):
        return DataConfig(dir=folders[0], more=folders[1:], vocab="v", window_rows=WINDOW, **more)

    def held(self):
        """Bytes of shards in the cache."""
        found = 0
        for path in (self.top / "cache").rglob("*.arrow"):
            with suppress(FileNotFoundError):  # a thread makes room
                found += path.stat().st_size
        return found


def reading(loader, start, stop, rank=0, gather=lambda value: [value]):
    return ReadPlan(
        run="run", rank=rank, spans=loader.spans, start=start, stop=stop, batch=BATCH, gather=gather, beat=lambda: None
    )


def begin(loader, cache, *of):
    cache.begin(reading(loader, *of))


@contextmanager
def ending(place):
    """The loader of the bucket in its first epoch, of a process that then ends."""
    loader, cache = place.cached(None)
    begin(loader, cache, 0, sum(ROWS))
    with closing(loader.source):
        yield loader
    cache._lock.close()


def batches(loader, start, stop, rank=0, world=1):
    for first in range(start, stop, BATCH):
        yield join(loader.batch(first, min(BATCH, stop - first), rank, world).batches)


@pytest.fixture
def place(bucket, tmp_path):
    return Place(bucket, tmp_path)


@pytest.fixture
def smallest(place):
    """Bytes of the smallest cache that is enough for three epochs, as the refusal says them."""
    return least(place, 0, 3 * sum(ROWS))


def least(place, start, stop, **more):
    """Bytes of the smallest cache that is accepted; one byte less is refused."""
    loader, cache = place.cached("1", **more)
    size = cache.needed(reading(loader, start, stop))
    loader, cache = place.cached(str(size - 1), **more)
    with refused(ConfigError, "to 1MB or more", key="data.cache_size"):
        begin(loader, cache, start, stop)
    return size


def test_batches_are_those_of_local_files_within_the_limit(place, smallest):
    stop = 3 * sum(ROWS)
    whole = sum(path.stat().st_size for path in place.whole[0].glob("train-*"))
    assert smallest < whole
    loader, cache = place.cached(str(smallest))
    begin(loader, cache, 0, stop)
    with closing(loader.source):
        for mine, theirs in zip(batches(loader, 0, stop), batches(place.local(), 0, stop), strict=True):
            assert same(mine, theirs)
            assert place.held() <= smallest
    assert np.array_equal(loader.words_per_token, place.local().words_per_token)
    loader.source.remove()
    assert not list((place.top / "cache").iterdir())


def test_folders_with_weights_are_fetched_as_they_are_mixed(bucket, tmp_path):
    place, stop = Place(bucket, tmp_path, 3), 700
    weights = [0.6, 0.3, 0.1]
    size = least(place, 0, stop, weights=weights)
    loader, cache = place.cached(str(size), weights=weights)
    begin(loader, cache, 0, stop)
    with closing(loader.source):
        local = batches(place.local(weights=weights), 0, stop)
        for mine, theirs in zip(batches(loader, 0, stop), local, strict=True):
            assert same(mine, theirs)
            assert place.held() <= size


def test_a_training_resumes_where_it_was_with_what_is_there(place, store):
    stop, middle = 3 * sum(ROWS), 18 * BATCH
    for start, end, world in ((0, middle, 1), (middle, stop, 2)):
        loader, cache = place.cached(None)
        store.requests.clear()
        begin(loader, cache, start, stop)
        with closing(loader.source):
            for rank in range(world):
                last = end if rank == world - 1 else start + BATCH
                local = batches(place.local(), start, last, rank, world)
                for mine, theirs in zip(batches(loader, start, last, rank, world), local, strict=True):
                    assert same(mine, theirs)
            assert loader.source.failure is None
        cache._lock.close()  # as if the process had ended
    # All shards were there: each was compared, none fetched.
    assert not [path for method, path in store.requests if method == "GET" and "train-" in path]


def assert_first_epoch(loader, place):
    """Its batches are those of local files."""
    for mine, theirs in zip(batches(loader, 0, sum(ROWS)), batches(place.local(), 0, sum(ROWS)), strict=True):
        assert same(mine, theirs)


def started_and_damaged(place):
    with ending(place) as loader:
        assert_first_epoch(loader, place)
    for path in (place.top / "cache").rglob("*.arrow"):
        path.write_bytes(bytes(path.stat().st_size))


def test_damaged_files_of_an_earlier_start_are_fetched_again(place):
    for _ in range(2):
        started_and_damaged(place)


def test_a_rank_that_is_ahead_opens_no_file_of_an_earlier_start(place):
    started_and_damaged(place)
    seen = []

    def gather(value):
        if isinstance(value, str):  # the folder: from now on, other ranks open what is there
            there = [path for path in Path(value).glob("*.arrow") if not path.name.startswith(".")]
            seen.extend(path for path in there if sha256(path) != path.stem)
        return [value]

    loader, cache = place.cached(None)
    cache.begin(reading(loader, 0, sum(ROWS), gather=gather))
    loader.source.close()
    assert seen == []


def test_ranks_of_a_node_fetch_each_shard_once(place, store, smallest):
    stop, world = 2 * sum(ROWS), 3
    meeting, values = threading.Barrier(world), [None] * world
    found = [[] for _ in range(world)]

    def work(rank):
        def gather(value):
            values[rank] = value
            meeting.wait()
            copy = list(values)
            meeting.wait()
            return copy

        loader, cache = place.cached(str(smallest))
        begin(loader, cache, 0, stop, rank, gather)
        with closing(loader.source):
            found[rank] = list(batches(loader, 0, stop, rank, world))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(world)]
    store.requests.clear()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in range(world):
        local = list(batches(place.local(), 0, stop, rank, world))
        assert len(found[rank]) == len(local)
        assert all(map(same, found[rank], local))
    gets = [path for method, path in store.requests if method == "GET" and "train-" in path]
    gets = [path for path in gets if "projection=" not in path]  # the bytes alone
    assert len(gets) <= 2 * len(ROWS)  # once per epoch, though three read it


@pytest.mark.parametrize("fault", [503, 429, "cut"])
def test_faults_that_pass_cost_no_batch(place, store, fault):
    store.fault = lambda method, path, number: fault if number % 3 == 0 else None
    with ending(place) as loader:
        assert_first_epoch(loader, place)


def test_a_store_that_stays_away_asks_for_a_restart_while_there_is_data_to_train_on(place, store, monkeypatch):
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "1")
    loader, cache = place.cached(None)
    last = next(iter(loader.spans(0)))
    known = {cache._shards[number].path.name for number in last.shards.tolist()}
    store.fault = lambda method, path, number: (
        503 if "train-" in path and unquote(path).partition("?")[0].rpartition("/")[2] not in known else None
    )
    begin(loader, cache, 0, sum(ROWS))
    with closing(loader.source):
        loader.batch(0, 1)
        while loader.source.failure is None:
            threading.Event().wait(0.05)
        assert isinstance(loader.source.failure, Restart)
        loader.batch(1, 1)  # the shards that are there are still read
        with pytest.raises(Restart):
            loader.batch(int(last.last), 1)


def test_a_loader_that_is_closed_fetches_no_more(place, store, monkeypatch):
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "1")
    store.fault = lambda method, path, number: 503 if "train-" in path else None
    loader, cache = place.cached(None)
    begin(loader, cache, 0, sum(ROWS))
    loader.source.close()
    store.fault = lambda method, path, number: None
    with pytest.raises(Restart):
        loader.batch(0, 1)


def test_a_shard_that_the_store_has_otherwise_is_refused(place):
    (address,) = place.addresses.values()
    for number in range(len(ROWS)):
        name = f"train-{number:05d}-of-{len(ROWS):05d}.arrow"
        size = (place.whole[0] / name).stat().st_size
        objects.put(f"{address}/{name}", bytes(size))
    with ending(place) as loader, pytest.raises(StoreError, match="checksum"):
        loader.batch(0, 1)


def test_what_an_ended_training_left_is_removed(place):
    with ending(place):
        pass
    (left,) = (place.top / "cache").iterdir()
    left.rename(left.with_name(left.name.replace("run", "other")))
    (place.top / "cache" / "notes.txt").write_text("not ours")
    with ending(place):
        pass
    assert {path.name for path in (place.top / "cache").iterdir()} == {left.name, "notes.txt"}
