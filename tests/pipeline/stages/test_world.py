"""Stories of trainings, conversions, kills, stalls and damage: nothing that a rule keeps is lost.

A story that found a fault is told again below the machine, as the lines that hypothesis printed.
"""

import re
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from pipeline.errors import Restart, UserError
from pipeline.records.manifest import MANIFEST
from pipeline.stages import fetch_inputs
from pipeline.storage.cached_folders import CachedFolder
from tests.pipeline.stages.world import TRAININGS, World, kept, number_after
from tests.security.hostile import SECONDS, for_seconds
from tests.support.examples import examples

names = st.sampled_from(sorted(TRAININGS))
machines = st.sampled_from("ab")
moments = st.integers(0, 130)  # a training from its first step makes about as many changes
FINAL = {number_after(name, steps): name for name, (_, steps) in TRAININGS.items()}


@pytest.fixture(params=[False, True], ids=["disk", "store"])
def world(request):
    found = World(request.param)
    yield found
    found.close()


@pytest.fixture
def stored():
    found = World(stored=True)
    yield found
    found.close()


@pytest.mark.parametrize(("moment", "machine"), [(93, "b"), (100, "b"), (100, "a")])  # 93: while it removes one
def test_a_training_that_resumes_loses_no_checkpoint_that_a_rule_keeps(stored, moment, machine):
    """As of `save_at_words`, and the one from which a longer training goes on."""
    stored.killed_at(moment, "a", lambda: stored.train("long", "a"))
    assert stored.checkpoints("long").keys() >= {0, 2, 6}
    before = {place: file for place, file in stored.store.data.items() if re.search("step-0000000[026]", place)}
    made = stored.train("long", machine)
    assert stored.manifest("train") == made
    assert stored.store.data.items() >= before.items(), "neither made nor put again"
    assert stored.names("train").keys() == {*made.files, MANIFEST}
    assert stored.checkpoints("long").keys() == {0, 2, 6, 10}
    assert [step for _, step in fetch_inputs.list_checkpoints(f"{stored.run}/train")][-1] == 10
    assert stored.wrong("train") == []
    marked = [name for name in made.files if "step-00000002" in name]
    assert len(marked) == 4, "what was not fetched is named, too"


def test_what_was_made_is_put_again_although_its_older_checkpoints_are_elsewhere(stored, monkeypatch):
    def cut_off(copy, name, seen, data):
        if b"fingerprint" in data:
            raise Restart("the store does not answer")
        return replace(copy, name, seen, data)

    replace = CachedFolder.replace
    stored.killed_at(100, "a", lambda: stored.train("long", "a"))
    with monkeypatch.context() as patched:
        patched.setattr(CachedFolder, "replace", cut_off)
        with pytest.raises(Restart):
            stored.train("long", "b")
    stored.train("long", "b")
    assert stored.checkpoints("long").keys() >= {0, 2, 6, 10}
    assert stored.wrong("train") == []


def test_what_somebody_changed_in_the_store_is_put_again_by_its_training(stored):
    """Although another training was made there since."""
    made = stored.train("short", "a")
    name = f"{made.figures['checkpoint']}/model.safetensors"
    stored.change("train", name, stored.names("train")[name][:-1] + b"?")
    stored.train("long", "a", force=True)
    stored.train("short", "a")
    assert stored.wrong("train") == []


@pytest.mark.parametrize("cut", [0, 1])
def test_what_was_fetched_as_somebody_changed_it_is_made_again(stored, cut):
    """By the machine that has read it for another stage."""
    made = stored.train("short", "a")
    name = f"{made.figures['checkpoint']}/model.safetensors"
    stored.change("train", name, stored.names("train")[name][: -1 - cut] + b"?")
    suppressed(lambda: stored.convert("train", "convert", "b"))
    stored.train("short", "b")
    assert stored.wrong("train") == []


@pytest.mark.parametrize("moment", [54, 75, 100])
def test_a_longer_training_takes_up_all_that_a_shorter_one_keeps(stored, moment):
    """The shorter one was written by two machines: neither has all of it."""
    stalls(stored, moment, "short")
    stored.train("long", "b")
    assert stored.checkpoints("long").keys() == {0, 2, 6, 10}


@pytest.mark.parametrize("moment", [6, 7, 8, 13])
def test_a_longer_training_keeps_its_own_checkpoints_while_it_takes_up_those_of_a_shorter_one(moment):
    world = World(stored=False)
    suppressed(lambda: world.refused_at(20, lambda: world.train("long", "a")))
    assert 0 in world.checkpoints("long")
    world.train("short", "a")
    suppressed(lambda: world.refused_at(moment, lambda: world.train("long", "a")))
    assert 0 in world.checkpoints("long")
    world.close()


def test_a_training_leaves_what_another_one_is_putting(stored):
    stored.train("short", "a")
    name = min(name for name in stored.names("train") if "/step-" in name)
    stored.change("train", name, None)
    rest = {other for other in stored.names("train") if other.startswith(name.rpartition("/")[0])}
    stored.train("other", "b")
    assert len(rest) == 3
    assert rest <= stored.names("train").keys()


def test_each_training_keeps_the_name_of_its_newest_checkpoint(world):
    world.train("short", "a")
    world.train("other", "b")
    assert len([name for name in world.names("train") if name.endswith("/latest")]) == 2
    assert world.wrong("train") == []


@pytest.mark.parametrize("moment", [52, 64, 76, 93])
def test_a_training_that_was_forced_elsewhere_begins_again_here(stored, moment):
    """What was not put when this machine was killed is older than the force: it is not taken up."""
    stored.killed_at(moment, "b", lambda: stored.train("long", "b"))
    stored.killed_at(45, "a", lambda: stored.train("long", "a", force=True))
    stored.train("long", "b")
    assert stored.checkpoints("long") == {step: number_after("long", step) for step in (0, 2, 6, 10)}
    assert stored.wrong("train") == []


@pytest.mark.parametrize("moment", range(16))
def test_a_longer_training_has_all_that_a_rule_keeps_although_a_force_was_cut_off(stored, moment):
    """What a force has left of the shorter one are its first checkpoints, with no gap."""
    stored.train("short", "a")
    stored.killed_at(moment, "b", lambda: stored.train("short", "b", force=True))
    assert stored.wrong("train") == []
    stored.train("long", "b")
    assert stored.checkpoints("long") == {step: number_after("long", step) for step in (0, 2, 6, 10)}


@pytest.mark.parametrize("moment", range(0, 108, 4))
def test_a_holder_that_stood_still_overwrites_no_finished_result(stored, moment):
    stalls(stored, moment, "short")
    assert stored.manifest("train") is not None
    assert stored.wrong("train") == []
    assert stored.checkpoints("short")[6] == number_after("short", 6)


@pytest.mark.parametrize("moment", range(12))
def test_a_holder_that_stood_still_removes_nothing_of_the_next_one(stored, moment):
    """It has found a checkpoint that was cut off, and would remove it before it begins."""
    stored.killed_at(33, "a", lambda: stored.train("long", "a"))
    stalls(stored, moment, "long")
    assert stored.wrong("train") == []
    assert stored.checkpoints("long") == {step: number_after("long", step) for step in (0, 2, 6, 10)}


class Stories(RuleBasedStateMachine):
    """Anybody does anything; what was promised holds after each step."""

    stored: bool

    def __init__(self):
        super().__init__()
        self.world = World(self.stored)
        self.damaged: set[str] = set()  # folders that were changed by somebody else
        self.spoilt = False  # checkpoints were
        self.finished = False  # a result was converted

    def teardown(self):
        self.world.close()

    def done(self, name, machine, **more):
        """Train to the end: what is said to be there is there."""
        made = self.world.train(name, machine, **more)
        self.damaged.discard("train")
        assert self.world.manifest("train") == made
        assert self.world.wrong("train") == []
        last = TRAININGS[name][1]
        assert self.world.checkpoints(name)[last] == number_after(name, last)

    @rule(name=names, machine=machines)
    def trains(self, name, machine):
        self.done(name, machine)

    @rule(name=names, machine=machines)
    def is_forced(self, name, machine):
        self.done(name, machine, force=True)

    @rule(name=names, machine=machines, moment=moments, force=st.booleans())
    def training_is_killed(self, name, machine, moment, force):
        self.world.killed_at(moment, machine, lambda: self.done(name, machine, force=force))

    @rule(name=names, machine=machines, moment=moments)
    def training_is_refused(self, name, machine, moment):
        with suppress(UserError, Restart, OSError):
            self.world.refused_at(moment, lambda: self.done(name, machine))

    @rule(name=names, moment=moments)
    def training_stalls(self, name, moment):
        """The other machine does all meanwhile, and its result stays."""
        stalls(self.world, moment, name)
        if self.stored and "train" not in self.damaged:
            assert self.world.wrong("train") == []

    @rule(machine=machines)
    def machine_is_lost(self, machine):
        if self.stored:
            self.world.lost(machine)

    def _converted(self, machine):
        made = self.world.manifest("train")
        whole = made is not None and "train" not in self.damaged
        with suppress(UserError, Restart):
            found = self.world.convert("train", "convert", machine)
            self.damaged.discard("convert")
            if whole:
                assert found.figures["number"] in FINAL
                self.finished = True

    @rule(machine=machines)
    def is_converted(self, machine):
        self._converted(machine)

    @rule(machine=machines, moment=st.integers(0, 15))
    def conversion_is_killed(self, machine, moment):
        self.world.killed_at(moment, machine, lambda: self._converted(machine))

    @rule(machine=machines)
    def is_used(self, machine):
        """Another stage reads what is there now, not what was there."""
        files = self.world.names("convert")
        if "number" not in files:
            return
        made = suppressed(lambda: self.world.convert("convert", "use", machine))
        if made is not None:
            self.damaged.discard("use")
            assert made.figures["number"] == int(files["number"])
            assert int(self.world.names("use")["number"]) == int(files["number"])  # some may be cut

    @rule(folder=st.sampled_from(["convert", "use", "train"]), how=st.sampled_from(["removed", "cut", "replaced"]))
    def is_damaged(self, folder, how):
        manifest = self.world.manifest(folder)
        if manifest is None or self.world.wrong(folder):
            return
        name = "number" if folder != "train" else f"{manifest.figures['checkpoint']}/model.safetensors"
        data = self.world.names(folder)[name]
        other = {
            "removed": None,
            "cut": data[:-1],
            "replaced": b"00007" if folder != "train" else data[:-1] + bytes([data[-1] ^ 1]),
        }
        self.world.change(folder, name, other[how])
        self.damaged.add(folder)
        if folder == "train":
            self.spoilt = True

    @invariant()
    def nothing_that_a_rule_keeps_is_lost(self):
        if self.spoilt:
            return
        for name, safe in self.world.safe.items():
            there = self.world.checkpoints(name)
            want = {step: number_after(name, step) for step in kept(name, safe)}
            assert want.items() <= there.items(), (name, want, there)
            assert max(there, default=-1) >= safe, (name, safe, there)

    @invariant()
    def no_manifest_names_what_is_missing_or_other(self):
        for folder in {"train", "convert", "use"} - self.damaged:
            assert self.world.wrong(folder) == [], folder

    @invariant()
    def an_unfinished_result_never_replaces_a_finished_one(self):
        found = self.world.names("convert").get("number")
        if self.finished and "convert" not in self.damaged and found is not None:
            assert int(found) in FINAL


def suppressed(work):
    """Do what may be refused."""
    with suppress(UserError, Restart):
        return work()


def stalls(world, moment, name):
    """Train on one machine, which stands still at a moment while the other one does all of it."""
    with suppress(UserError, Restart):
        world.stalled_at(moment, lambda: world.train(name, "a"), lambda: suppressed(lambda: world.train(name, "b")))


class OnADisk(Stories):
    """One folder that both machines share."""

    stored = False


class InAStore(Stories):
    """A bucket, and a mirror on each machine."""

    stored = True


def test_a_checkpoint_of_which_a_part_was_removed_is_in_no_manifest():
    story = InAStore()
    story.training_is_refused(machine="a", moment=55, name="short")
    story.training_is_refused(machine="a", moment=101, name="long")
    story.is_forced(machine="b", name="short")
    story.training_stalls(moment=103, name="other")
    story.training_stalls(moment=45, name="long")  # while it removes the third file of a checkpoint
    story.teardown()


@pytest.mark.fuzz
@pytest.mark.parametrize("machine", [OnADisk, InAStore])
def test_no_story_loses_what_a_rule_keeps(machine):
    chosen = settings(
        max_examples=examples(200, quick=15),
        stateful_step_count=8,
        deadline=None,
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if SECONDS else [])],
        suppress_health_check=list(HealthCheck),
    )
    for_seconds(lambda: run_state_machine_as_test(machine, settings=chosen))


@pytest.mark.parametrize("data", [b"00007", b"7", None])
def test_what_was_changed_in_a_finished_folder_is_read_or_made_again(world, data):
    world.train("short", "a")
    right = world.convert("train", "convert", "a").figures["number"]
    world.convert("convert", "use", "a")
    world.change("convert", "number", data)
    if data is not None:
        assert world.convert("convert", "use", "a").figures["number"] == int(data)
    assert world.convert("train", "convert", "a").figures["number"] == right
    assert int(world.names("convert")["number"]) == right
