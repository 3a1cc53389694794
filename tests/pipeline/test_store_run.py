"""The whole graph in an object store: the bytes of one on a disk, and known on any machine."""

import shlex
import subprocess
import sys

import pytest

from pipeline.records.manifest import MANIFEST, Manifest
from tests.pipeline.test_run import STAGES, command, write_books
from tests.support import objects

pytestmark = [pytest.mark.slow, pytest.mark.store, pytest.mark.timeout(1800)]

SAME = (".arrow", ".txt", ".tsv", ".safetensors")  # of the rest some has times or paths in it


SMALL = {"tasks.train_rows": 40, "train.steps": 8, "train.save_every": 4, "train.tracking.name": "none"}


def run(root, words, code=0):
    done = subprocess.run(words, cwd=root, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == code, done.stdout
    return done.stdout


def test_a_run_in_a_store_is_that_on_a_disk(root, bucket, tmp_path):
    corpus = tmp_path / "books"
    write_books(corpus, 16)
    work, mirror = f"{bucket}/run", tmp_path / "mirror"
    run(root, command(SMALL, corpus, tmp_path / "local"))
    run(root, command(SMALL, corpus, work, f"mirror={mirror}"))
    for name in STAGES:
        local, stored = Manifest.read(tmp_path / "local" / name), Manifest.read(f"{work}/{name}")
        assert (local.fingerprint, local.files.keys()) == (stored.fingerprint, stored.files.keys())
        for file in local.files:
            if file.endswith(SAME):
                assert local.files[file] == stored.files[file], file
    name = "evaluate-sample_next"
    scores = [Manifest.read(f"{place}/{name}") for place in (tmp_path / "local", work)]
    assert scores[0].figures == scores[1].figures

    # The store holds what the manifests name, and the logs; no lock is left.
    named = {f"run/{name}/{file}" for name in STAGES for file in [*Manifest.read(f"{work}/{name}").files, MANIFEST]}
    there = {info.key for info in objects.below(work)}
    assert there - named == {f"run/logs/{name}.log" for name in STAGES} | {"run/run.json"}
    assert named <= there
    assert not (root / bucket.partition("//")[0]).exists()

    again = run(root, command(SMALL, corpus, work, f"mirror={tmp_path / 'other'}"))
    assert again.count("  up to date  ") == len(STAGES)
    assert not list((tmp_path / "other").rglob("*.arrow"))

    # A grid that two machines share: the one that finds it whole writes the account.
    words = [
        sys.executable,
        *shlex.split(f"-m pipeline.evaluate +task=sample_next workdir={work} out={work}/evaluate-parts epochs=1"),
    ]
    run(root, [*words, "part=[0,2]", f"mirror={tmp_path / 'p0'}"])
    assert Manifest.read(f"{work}/evaluate-parts") is None
    run(root, [*words, "part=[1,2]", f"mirror={tmp_path / 'p1'}"])
    parts = Manifest.read(f"{work}/evaluate-parts")
    assert parts.figures["score"] == scores[0].figures["score"]
