"""Files that appear whole, and leases that one holder has."""

import itertools
import multiprocessing
import threading
from functools import partial

import pytest

from pipeline.config import CorpusConfig, DownloadConfig, DownloadFile
from pipeline.errors import Restart
from pipeline.records.manifest import Manifest, Result
from pipeline.stages import stage
from pipeline.storage import lease
from pipeline.storage.atomic import atomic_folder, atomic_path, remove_leftovers, write_text
from tests.pipeline.stages.world import World

CONTENTS = [str(number) * 20_000 for number in range(4)]


def write_often(folder, content):
    """Write a file and a folder of one content, many times."""
    for _ in range(60):
        write_text(folder / "file", content)
        with atomic_folder(folder / "made") as made:
            made.mkdir()
            (made / "a").write_text(content)


def test_writers_at_once_leave_the_content_of_one(tmp_path):
    write_often(tmp_path, CONTENTS[0])
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=write_often, args=(tmp_path, each)) for each in CONTENTS]
    for worker in workers:
        worker.start()
    try:
        while any(worker.is_alive() for worker in workers):
            assert (tmp_path / "file").read_text() in CONTENTS
    finally:
        for worker in workers:
            worker.join()
    assert [worker.exitcode for worker in workers] == [0] * len(workers)
    assert (tmp_path / "made" / "a").read_text() in CONTENTS
    assert {path.name for path in tmp_path.iterdir()} == {"file", "made"}


def interrupt(writer):
    """Begin to write, and be interrupted."""
    with writer as path:
        path.mkdir() if path.name.startswith(".b") else path.write_text("half")
        raise KeyboardInterrupt


def test_a_body_that_raises_leaves_the_old_content(tmp_path):
    write_text(tmp_path / "a", "old")
    with atomic_folder(tmp_path / "b") as folder:
        folder.mkdir()
        (folder / "c").write_text("old")
    for enter in (lambda: atomic_path(tmp_path / "a"), lambda: atomic_folder(tmp_path / "b")):
        with pytest.raises(KeyboardInterrupt):
            interrupt(enter())
    assert (tmp_path / "a").read_text() == (tmp_path / "b" / "c").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_leftovers_are_removed_and_nothing_else(tmp_path):
    for name in (".a.0123abcd.tmp", "a.tmp", ".hidden", "b"):
        (tmp_path / name).write_text("")
    (tmp_path / ".m.0123abcd.tmp").mkdir()
    (tmp_path / ".m.0123abcd.tmp" / "x").write_text("")
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.tmp", ".hidden", "b"}


# Two holders of one folder, switched at every request: no manifest ever says what is not there.


REQUESTS = ("read", "head", "below", "is_folder", "opened", "age", "put", "delete")


class Turns:
    """One holder runs at a time; before the requests of these numbers the other one goes on.

    Who waits for a lock lets the store's clock go on, so that the one that stands still loses it.
    """

    def __init__(self, world, switches):
        self.world, self.switches, self.count, self.inside = world, switches, 0, False
        self.go = {name: threading.Semaphore(0) for name in "ab"}
        self.now, self.ended, self.results = "a", set(), {}
        for name in REQUESTS:
            setattr(world.store, name, partial(self.request, getattr(world.store, name)))

    def request(self, asked, *arguments, **conditions):
        if self.inside:  # what a request does is one step
            return asked(*arguments, **conditions)
        self.count += 1
        if self.count - 1 in self.switches:
            self.switch()
        self.inside = True
        try:
            found = asked(*arguments, **conditions)
            assert self.world.wrong("download") == [], self.switches
        finally:
            self.inside = False
        return found

    def switch(self):
        me, other = self.now, "ba"["ab".index(self.now)]
        if other not in self.ended:
            self.now = other
            self.go[other].release()
            if me not in self.ended:
                self.go[me].acquire()

    def work(self, name, work):
        self.go[name].acquire()
        try:
            self.results[name] = work()
        except BaseException as error:
            self.results[name] = error
        self.ended.add(name)
        self.switch()

    def run(self, works):
        threads = [threading.Thread(target=self.work, args=one) for one in works.items()]
        for thread in threads:
            thread.start()
        self.go["a"].release()
        for thread in threads:
            thread.join()
        return self.results


def made(world, machine, alike, in_place):
    """Make the folder as a machine does; what it writes has its name, and one size."""

    def make(config, out):
        for name in ("data", "more"):
            (out / name).write_text(machine)
        return Result(summary=machine, figures={})

    corpus = CorpusConfig(name="c" if alike else machine, reader="books", files=[DownloadFile(url="http://h/a")])
    config = DownloadConfig(corpus=corpus, out=f"{world.run}/download", mirror=str(world.disk / machine))
    return stage.run("download", config, make, in_place=in_place, wait=True)


def story(switches, alike, in_place):
    """Let both make the folder; return how many requests they made."""
    world = World(stored=True)
    try:
        works = {machine: partial(made, world, machine, alike, in_place) for machine in "ab"}
        turns = Turns(world, switches)
        results = turns.run(works)
        assert all(isinstance(one, Manifest | Restart) for one in results.values()), (switches, results)
        requests, turns.inside = turns.count, True
        for machine in "ab":
            assert works[machine]().summary in ("ab" if alike else machine), switches
            assert world.wrong("download") == [], switches
        assert not [address for address in world.store.data if address.endswith(".lock")], switches
        return requests
    finally:
        world.close()


def explore(story, *before):
    """Tell the story with one more switch, at each number of a request that is reached."""
    for number in itertools.count(max(before, default=-1) + 1):
        if story((*before, number)) <= number:
            return


@pytest.fixture(autouse=True)
def few_looks(monkeypatch):
    """Let who waits ask less often."""
    monkeypatch.setattr(lease, "ASK", lease.LEASE / 4)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("alike", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_holder_may_stand_still_before_any_request(alike, in_place):
    explore(partial(story, alike=alike, in_place=in_place))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("first", range(5, 17, 3))
def test_each_holder_may_stand_still_before_any_request(first, in_place):
    explore(partial(story, alike=False, in_place=in_place), first)
