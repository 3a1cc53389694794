"""What is wrong with a user's files: one line that names it, exit code 2, nothing left behind."""

import bz2
import os
import re
import shutil
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import prepare as stage_prepare
from pipeline.beam import steps
from pipeline.beam.task import Task
from pipeline.errors import InputError
from pipeline.preparation.plan import loaded_vocabulary, make_plan
from tests.support import forked
from tests.support.examples import WORKERS
from tests.support.preparing import vocabulary
from tests.support.refusals import refused
from tests.support.runs import configured

PAGE = "<page><title>T</title><ns>0</ns><id>1</id><revision><id>2</id><text>Words.</text>"
LONG = "words words words. " * 9
DUMP = f"<mediawiki>{PAGE}</revision></page></mediawiki>"


@pytest.fixture(scope="module")
def vocab(tmp_path_factory):
    """A small vocabulary."""
    return vocabulary(tmp_path_factory.mktemp("vocab"), ["words", "."])


def planned(*words, out):
    """Return the plan of a run in `out`, with the folder of its tasks."""
    plan = make_plan(configured("prepare", *words, f"out={out}/out"), out / "out")
    plan.scratch.mkdir(parents=True)
    return plan


CUT, DAMAGED = bz2.compress(DUMP.encode() * 50)[:-20], bytearray(bz2.compress(DUMP.encode()))
DAMAGED[40] ^= 255


FAULTS = {"missing.xml": None, "cut.xml.bz2": CUT, "damaged.xml.bz2": DAMAGED, "none.xml": b"<mediawiki></mediawiki>"}
FAULTS["broken.xml"] = DUMP.replace("</revision>", "").encode()


@pytest.mark.parametrize("name", FAULTS)
def test_a_dump_that_cannot_be_read_is_named(vocab, tmp_path, name):
    if (raw := FAULTS[name]) is not None:
        (tmp_path / name).write_bytes(raw)
    out = tmp_path / "prepare"
    done = prepare("+corpus=wiki", f"corpus.path={tmp_path / name}", f"vocab={vocab}", f"out={out}")
    assert done.returncode == 2, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert ("0 pages" if name == "none.xml" else name) in errors[0]
    assert "Traceback" not in done.stderr
    assert not out.exists()
    assert {path.name for path in tmp_path.iterdir()} <= {name, ".prepare.lock"}


def prepare(*words):
    return forked.module("pipeline.prepare", *words)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_full_disk_is_an_error_and_leaves_nothing(vocab, tmp_path, small_disk, workers):
    lines = (f"Words {'words ' * (number % 50)}{number}." for number in range(60_000))
    (tmp_path / "a.txt").write_text("\n\n".join(lines))
    places = [f"corpus.path={tmp_path}/a.txt", f"vocab={vocab}", f"out={small_disk}/out"]
    done = prepare("+corpus=lines", *places, "minimum_characters=0", f"runner.workers={workers}")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"error: out={small_disk}/out: no space ")
    assert len(done.stderr.splitlines()) == 1
    assert {path.name for path in small_disk.iterdir()} == {".out.lock"}


def test_a_disk_too_full_for_a_note_reaches_the_driver(vocab, tmp_path, small_disk):
    (tmp_path / "a.txt").write_text("Words.\n")
    plan = planned("+corpus=text", f"corpus.path={tmp_path}/a.txt", f"vocab={vocab}", out=small_disk)
    with Task(plan).noted():
        (small_disk / "filling").write_bytes(bytes(2**22))
    assert plan.error_note.exists()
    with pytest.raises(OSError, match="No space left"):
        steps.raise_noted(plan)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_mistake_is_one_line_however_many_workers_find_it(vocab, tmp_path, workers):
    lines = ['{"text": "Words."}\n'] * 400
    for broken in (30, 200, 390):
        lines[broken] = "{broken\n"
    (tmp_path / "a.jsonl").write_text("".join(lines))
    places = [f"corpus.path={tmp_path}/a.jsonl", f"vocab={vocab}", f"out={tmp_path}/out"]
    done = prepare("+corpus=jsonl", *places, "split_bytes=1000", f"runner.workers={workers}")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"error: {tmp_path}/a.jsonl, line ")
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(("reader", "text"), [("wiki", DUMP), ("lines", "Words.\nWords.\n")])
def test_a_file_that_goes_between_plan_and_read_is_named(vocab, tmp_path, reader, text):
    path = tmp_path / ("a.xml" if reader == "wiki" else "a.txt")
    path.write_text(text)
    plan = planned(f"+corpus={reader}", f"corpus.path={path}", f"vocab={vocab}", out=tmp_path)
    path.unlink()
    with pytest.raises(InputError, match=f"{path.name}: [^\\[]*$"):
        steps.run(plan)


def test_the_fields_of_a_mistake_reach_the_driver(vocab, tmp_path):
    (tmp_path / "a.txt").write_text("Words.\n")
    shutil.copytree(vocab, tmp_path / "v")
    words = ["+corpus=text", f"corpus.path={tmp_path}/a.txt", f"vocab={tmp_path}/v"]
    plan = planned(*words, out=tmp_path)
    vocabulary(tmp_path / "v", ["other"])
    loaded_vocabulary.cache_clear()
    with refused(InputError, "changed", key="vocab"):
        steps.run(plan)


@pytest.mark.parametrize(
    ("corpus", "files", "words", "cure"),
    [
        ("text", {"a.txt": "Short.\n"}, [], r"set (minimum_characters=1)\b"),
        ("text", {"news.en": f"{LONG}\n", "news.de": f"{LONG}\n"}, [], r"set (corpus\.path='.*/\*\*/\*\.de')"),
        ("parquet", {"lang=nl/a.parquet": None}, ["corpus.options.id=lang"], r"set (corpus\.path=.*/lang=nl),"),
    ],
)
def test_a_cure_of_reading_makes_shards_when_typed(tmp_path, vocab, corpus, files, words, cure):
    for name, text in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            pq.write_table(pa.table({"text": [LONG]}), tmp_path / "in" / name)
        else:
            (tmp_path / "in" / name).write_text(text)
    made = [f"+corpus={corpus}", f"vocab={vocab}", f"out={tmp_path}/out", "pairs=none", "validation_share=0"]
    typed = f"corpus.path={tmp_path}/in"
    with pytest.raises(InputError, match=cure) as raised:
        stage_prepare.execute(configured("prepare", *made, typed, *words))
    found = re.search(cure, str(raised.value))
    assert found
    key, _, value = found[1].partition("=")
    own = [] if key == "corpus.path" else [typed]
    stage_prepare.execute(configured("prepare", *made, *own, f"{key}={value.strip(chr(39))}"))
    assert (tmp_path / "out" / "manifest.json").exists()
