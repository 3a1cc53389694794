"""A small world for `test_world.py`: a store that can fail, two machines, a training of one number.

Stages, leases, copies, checkpoints and their retention are the product's. Doubles are the store,
its clock, and the network that is trained: each step depends on all before it.
"""

import hashlib
import io
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
from safetensors.torch import load_file

from model.config import DataConfig, ModelConfig, ObjectiveConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from model.training import checkpoint, extending
from model.training.extending import TrajectoryHash
from model.training.schedule import Schedule
from pipeline import convert
from pipeline.common import parallel
from pipeline.config import ConvertConfig
from pipeline.errors import StoreError
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Manifest, Result
from pipeline.records.retention import Retention
from pipeline.stages import fingerprints, stage
from pipeline.storage import lease, places
from pipeline.storage.stores.client import ANY
from pipeline.storage.stores.remote_file import Info, listed_prefix, parse
from pipeline.storage.uploads import BackgroundUpload
from tests.support import finished, objects

TRAININGS = {  # name: seed, steps; the first four steps of `long` are those of `short`
    "short": (1, 6),
    "long": (1, 10),
    "other": (2, 6),
}
SCHEDULE = ScheduleConfig(name="wsd", warmup_steps=1, decay_share=0.4)
EVERY, KEEP, MARKS = 2, 1, {0: 0.0, 2: 1000.0}
CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "shutil.rmtree"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Killed(BaseException):
    """The process is dead: nothing that it would still do happens."""


def number_after(name, step):
    """What training gives after `step` steps without any interruption."""
    seed, steps = TRAININGS[name]
    number = seed
    for done in range(step):
        number = (number * 31 + int(1000 * Schedule(SCHEDULE, steps).lr_factor(done)) + done) % 10007
    return number


class Store:
    """An object store in memory, in place of those of s3://; at the n-th change `due` runs."""

    def __init__(self):
        self.data: dict[str, tuple[bytes, float]] = {}
        self.clock, self.dead, self.left = 1e6, False, -1
        self.due: Callable[[bool], None] = lambda request: None

    def count(self, request):
        if self.dead:
            raise Killed
        self.left -= 1
        if self.left == -1:
            self.due(request)

    def info(self, address):
        data, when = self.data[address]
        return Info(parse(address)[1], len(data), int(when * 1e9), hashlib.md5(data).hexdigest())

    def head(self, address):
        return self.info(address) if address in self.data else None

    def below(self, address):
        top = f"s3://{parse(address)[0]}/{listed_prefix(parse(address)[1])}"
        return [self.info(key) for key in sorted(self.data) if key.startswith(top)]

    def is_folder(self, address):
        return bool(self.below(address))

    def opened(self, address, info):
        """Bound to one version, as in those of s3://."""
        if self.head(address) != info:
            raise StoreError("changed since it was listed", path=address)
        return io.BytesIO(self.data[address][0])

    def read(self, address):
        found = self.head(address)
        return found and (self.data[address][0], found.etag)

    def age(self, address):
        return self.clock - self.data[address][1] if address in self.data else None

    def put(self, address, data, over=ANY):
        self.count(request=True)
        now = self.head(address)
        if over != ANY and over != (now and now.etag):
            return None
        self.clock += 1
        self.data[address] = bytes(data), self.clock
        return self.info(address).etag

    def put_file(self, address, path, checksum, over=ANY):
        return self.put(address, Path(path).read_bytes(), over)

    def delete(self, address, etag=None):
        self.count(request=True)
        if etag is None or (address in self.data and self.info(address).etag == etag):
            self.data.pop(address, None)

    def sleep(self, seconds):
        self.clock += seconds


class Inline(BackgroundUpload):
    """Puts what was saved at once: events have one order."""

    def start(self, work):
        self.saved = work

    def wait(self, beat=lambda: None): ...

    def close(self): ...


WATCHED: list["World"] = []


def _hook(event, arguments):
    """Count changes of the disk below the world; audit hooks stay for the life of a process."""
    if not WATCHED or event not in CHANGES:
        return
    if event == "open" and not int(arguments[2] or 0) & WRITING:
        return
    if str(arguments[0]).startswith(str(WATCHED[-1].disk)):
        WATCHED[-1].store.count(request=False)


sys.addaudithook(_hook)


class World:
    """Machines `a` and `b` that train, convert and convert again in one folder."""

    def __init__(self, stored):
        self.stored = stored
        self.top = Path(tempfile.mkdtemp(prefix="world-"))
        self.disk = self.top / "disk"
        self.disk.mkdir()
        (self.top / "shards").touch()
        (self.top / "vocab").touch()
        self.run = "s3://bucket/run" if stored else str(self.disk / "run")
        self.store = Store()
        clock = SimpleNamespace(sleep=self.store.sleep, time=time.time, monotonic=lambda: self.store.clock)
        self._patches = [
            patch.dict(objects.CLIENTS, {"s3": self.store}),
            patch.dict(places._STORES, {"s3": self.store}),
            patch.object(lease, "time", clock),
            patch.object(parallel, "THREADS", 1),
        ]
        for each in self._patches:
            each.start()
        self.safe: dict[str, int] = {}  # the last step that a training was told to be saved
        WATCHED.append(self)

    def close(self):
        WATCHED.remove(self)
        for each in self._patches:
            each.stop()
        shutil.rmtree(self.top)

    # What people start.

    def config(self, name, machine, **more):
        seed, steps = TRAININGS[name]
        return TrainConfig(
            out=f"{self.run}/train",
            mirror=str(self.disk / machine),
            seed=seed,
            steps=steps,
            data=DataConfig(dir=str(self.top / "shards"), vocab=str(self.top / "vocab")),
            model=ModelConfig(name="tiny", layers=1, hidden=8, heads=1, feed_forward=8),
            objective=ObjectiveConfig(name="mlm", next_sentence=False),
            schedule=SCHEDULE,
            optimizer=OptimizerConfig(name="adamw"),
            keep=KEEP,
            **more,
        )

    def train(self, name, machine, **more):
        """Do about checkpoints what `model.train` and the trainer do."""
        config = self.config(name, machine, **more)
        identity = fingerprints.fingerprint("train", config)
        common = fingerprints.partial_fingerprint(config, identity[1], extending.independent_keys(config))
        first_steps = TrajectoryHash(config, TRAININGS[name][1], common)
        uploads = Inline()
        if config.force:
            self.safe[name] = -1

        def make(local, out):
            run = out / checkpoint_folder.RUNS / identity[0][:12]
            found = extending.find_newest(run, first_steps, "d", False, uploads.fetch)
            start = found[1].step if found else -EVERY
            if found:
                assert self.number(found[0]) == number_after(name, start), "resumed with another"
            number = self.number(found[0]) if found else number_after(name, 0)
            for step in range(start, TRAININGS[name][1] + 1):
                if step > start and step % EVERY == 0:
                    self._save(name, run, step, number, first_steps)
                    uploads.saved()
                    self.safe[name] = max(self.safe.get(name, -1), step)
                if step >= 0:
                    rate = Schedule(SCHEDULE, TRAININGS[name][1]).lr_factor(step)
                    number = (number * 31 + int(1000 * rate) + step) % 10007
            return Result(
                summary="trained", figures={"checkpoint": str(checkpoint_folder.find_newest(run)[0].relative_to(out))}
            )

        return stage.run(
            "train", config, make, in_place=True, uploads=uploads if self.stored else None, identity=identity
        )

    @staticmethod
    def number(path):
        return int(load_file(path / checkpoint_folder.WEIGHTS)["number"])

    @staticmethod
    def _save(name, run, step, number, first_steps):
        state = finished.state(step, mark=MARKS.get(step), first_steps=first_steps.hash_of(step))
        path = checkpoint.write(run, state, {"number": torch.tensor([number])}, {})
        stable = Schedule(SCHEDULE, TRAININGS[name][1]).steps_before_decay
        Retention(KEEP, stable=stable).prune(path)

    def convert(self, source, out, machine):
        """Copy the number of a training's result, or of a converted folder."""

        def make(local, folder):
            path = Path(local.train)
            if source == "train":
                number = self.number(checkpoint_folder.locate(path)[0])
            else:
                number = int((path / "number").read_text())
            (folder / "number").write_text(f"{number:05}")
            return Result(summary="converted", figures={"number": number})

        return convert.run(
            ConvertConfig(
                train=f"{self.run}/{source}", vocab=None, out=f"{self.run}/{out}", mirror=str(self.disk / machine)
            ),
            make,
        )

    # What is there.

    def names(self, folder):
        """Return the files of a folder of the run that are not hidden, with their bytes."""
        if self.stored:
            start = len(f"{self.run}/{folder}/")
            found = {a[start:]: d for a, (d, _) in self.store.data.items() if a.startswith(f"{self.run}/{folder}/")}
        else:
            top = Path(self.run, folder)
            paths = [path for path in top.rglob("*") if path.is_file()]
            found = {path.relative_to(top).as_posix(): path.read_bytes() for path in paths}
        return {n: d for n, d in found.items() if not any(p.startswith(".") for p in n.split("/"))}

    def change(self, folder, name, data):
        """Do to a file what somebody else may do: write other bytes, or remove it."""
        if self.stored:
            address = f"{self.run}/{folder}/{name}"
            self.store.clock += 1
            if data is None:
                del self.store.data[address]
            else:
                self.store.data[address] = data, self.store.clock
        elif data is None:
            Path(self.run, folder, name).unlink()
        else:
            Path(self.run, folder, name).write_bytes(data)

    def manifest(self, folder):
        return Manifest.read(f"{self.run}/{folder}")

    def checkpoints(self, name):
        """Return the numbers of a training's whole checkpoints by step."""
        run = fingerprints.fingerprint("train", self.config(name, "a"))[0][:12]
        files, found = self.names("train"), {}
        for sums in (n for n in files if n.startswith(f"checkpoints/{run}/") and n.endswith("SUMS")):
            top = sums.rpartition("/")[0]
            lines = (line.split() for line in files[sums].decode(errors="replace").splitlines())
            if all(hashlib.sha256(files.get(f"{top}/{n}", b"")).hexdigest() == s for s, n in lines):
                with tempfile.NamedTemporaryFile() as file:
                    Path(file.name).write_bytes(files[f"{top}/{checkpoint_folder.WEIGHTS}"])
                    found[int(top[-8:])] = int(load_file(file.name)["number"])
        return found

    def wrong(self, folder):
        """Return the files that a manifest names and that are missing or other."""
        manifest = self.manifest(folder)
        if manifest is None:
            return []
        files = self.names(folder)
        return [
            name
            for name, account in manifest.files.items()
            if hashlib.sha256(files.get(name, b"")).hexdigest() != account["sha256"]
        ]

    # What happens to machines.

    def at(self, moment, due, work):
        """Do `work`, and `due` at its n-th change of the store or the disk."""
        self.store.left, self.store.due = moment, due
        try:
            work()
        finally:
            self.store.left = -1

    def killed_at(self, moment, machine, work):
        """Do `work` until the n-th change; what it does afterwards does not happen."""
        here = self.disk / (machine if self.stored else "run")
        still = self.top / "still"

        def kill(request):
            self.store.dead = True
            WATCHED.remove(self)
            if here.exists():
                shutil.copytree(here, still, symlinks=True)
            raise Killed

        with suppress(Killed):
            self.at(moment, kill, work)
        if self.store.dead:
            shutil.rmtree(here, ignore_errors=True)
            if still.exists():
                still.rename(here)
            WATCHED.append(self)
            self.store.dead = False
            self.store.clock += 100

    def refused_at(self, moment, work):
        """Do `work`, whose n-th change of the store or the disk is refused."""

        def refuse(request):
            if request:
                raise StoreError("s3://bucket: refused")
            raise OSError(28, "No space left on device")

        self.at(moment, refuse, work)

    def stalled_at(self, moment, work, meanwhile):
        """Do `work`; at its n-th change it stands still until `meanwhile` is done."""

        def stall(request):
            self.store.clock += 100
            meanwhile()
            self.store.clock += 100

        self.at(moment, stall, work)

    def lost(self, machine):
        """A machine of a run in a store is replaced by an empty one."""
        shutil.rmtree(self.disk / machine, ignore_errors=True)


def kept(name, safe):
    """The steps that a rule keeps besides the newest; knows nothing of the product's."""
    branch = {"short": 4, "long": 6, "other": 4}[name]
    return (step for step in (0, 2, branch) if step <= safe)
