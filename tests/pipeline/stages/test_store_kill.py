"""`kill -9` at any moment of an upload leaves whole checkpoints alone, from which a run resumes."""

import hashlib
import os
import random
import signal
import subprocess
import sys

import pytest

from pipeline.records.manifest import MANIFEST, Manifest
from pipeline.storage.stores.remote_file import parse
from tests.support import objects

pytestmark = [pytest.mark.slow, pytest.mark.store, pytest.mark.timeout(900)]

STEPS, KILLS = 4, 10
CHANGES = ("PUT", "POST", "DELETE")


def start(root, out, mirror):
    words = [sys.executable, "-m", "tests.pipeline.stages.resuming", out, str(mirror), str(STEPS)]
    return subprocess.Popen(words, cwd=root, text=True, stdout=subprocess.PIPE)


def whole_steps(out):
    """Return the steps of the checkpoints that have sums, each compared with its sums."""
    there = {info.key for info in objects.below(out)}
    steps = []
    for key in sorted(key for key in there if key.endswith("SHA256SUMS")):
        top = f"{out.partition(':')[0]}://{parse(out)[0]}/{key.removesuffix('/SHA256SUMS')}"
        found = objects.read(f"{top}/SHA256SUMS")
        assert found is not None
        for line in found[0].decode().splitlines():
            checksum, name = line.split()
            data = objects.read(f"{top}/{name}")
            assert hashlib.sha256(data[0]).hexdigest() == checksum
        steps.append(int(top.rpartition("-")[2]))
    return steps


def test_a_run_resumes_after_a_kill_at_any_request(root, bucket, store, tmp_path):
    first = start(root, f"{bucket}/0/train", tmp_path / "0")
    first.communicate()
    assert first.returncode == 0
    want = Manifest.read(f"{bucket}/0/train")
    assert want is not None
    changes = sum(method in CHANGES for method, _ in store.requests)
    moments = random.Random(1).sample(range(2, changes), KILLS)
    print("killed at requests", moments, "of", changes)
    kills = 0
    for number, moment in enumerate(moments, start=1):
        out = f"{bucket}/{number}/train"
        seen = iter(range(10**6))

        def kill(method, path, count):
            if method in CHANGES and next(seen) == moment:  # noqa: B023
                os.kill(killed.pid, signal.SIGKILL)  # noqa: B023

        store.fault = kill
        killed = start(root, out, tmp_path / f"{number}a")
        killed.communicate()
        kills += killed.returncode == -signal.SIGKILL
        store.fault = lambda method, path, count: None

        whole = whole_steps(out)
        again = start(root, out, tmp_path / f"{number}b")
        said, _ = again.communicate()
        assert again.returncode == 0
        if "resumed" in said:  # else the killed one had finished
            assert f"resumed after {max(whole, default=0)}\n" in said
        made = Manifest.read(out)
        assert made.files == want.files
        top = f"{number}/train/"
        names = {info.key.removeprefix(top) for info in objects.below(out)}
        assert names == {*want.files, MANIFEST}
    assert kills >= KILLS - 2  # requests that renew a lock are counted, and come by the clock
