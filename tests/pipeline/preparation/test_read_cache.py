"""What was read is taken up by the next start, and changes no byte of what comes of it."""

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline import prepare
from pipeline.config import FiltersConfig, RunnerConfig
from pipeline.errors import InputError
from pipeline.preparation import plan
from pipeline.preparation.plan import make_plan
from pipeline.preparation.read_cache import ReadCache
from pipeline.records.manifest import require_manifest
from pipeline.stages import stage
from tests.support import objects, preparing
from tests.support.examples import WORKERS, examples
from tests.support.refusals import refused

WORDS = [f"word{number}" for number in range(60)]


@pytest.fixture
def vocab(tmp_path):
    return preparing.vocabulary(tmp_path / "vocab", [*WORDS, "."])


EQUAL = "\n".join(f"{' '.join(WORDS[start : start + 6])}." for start in range(0, 60, 6))


def text(draw):
    """Return one of few documents, so that some are equal and some nearly."""
    words = random.Random(draw.randrange(30)).choices(WORDS, k=60)
    if draw.random() < 0.5:
        words[draw.randrange(60)] = draw.choice(WORDS)
    return "\n".join(f"{' '.join(words[start : start + 6])}." for start in range(0, 60, 6))


def change(corpus, draw):
    """Add, remove or edit a file."""
    files = sorted(corpus.iterdir())
    what = draw.choice(["add", "remove", "edit"]) if len(files) > 8 else "add"
    if what == "remove":
        draw.choice(files).unlink()
    else:
        path = corpus / f"{draw.random()}.txt" if what == "add" else draw.choice(files)
        path.write_text("\n\n".join(text(draw) for _ in range(draw.randrange(1, 4))))


def made(config):
    """Run the stage; return the checksums of its files."""
    return {name: file["sha256"] for name, file in stage.run("prepare", config, prepare.make).files.items()}


@pytest.fixture
def reads(monkeypatch):
    """Return a list of the units that are written from now on."""
    written, write = [], ReadCache.write

    def noted(self, name, *arguments):
        write(self, name, *arguments)
        written.append(self.folder / name)

    monkeypatch.setattr(ReadCache, "write", noted)
    return written


@pytest.fixture
def corpus(tmp_path):
    """Forty changes make about thirty files, read in about twenty tasks."""
    draw, folder = random.Random(0), tmp_path / "corpus"
    folder.mkdir()
    for _ in range(40):
        change(folder, draw)
    return folder


def config(tmp_path, name, near=None, **more):
    usual = {"validation_share": 0.2, "minimum_characters": 0, "shard_bytes": 4000}
    usual |= {"split_bytes": 600, "runner": RunnerConfig(task_bytes=600)}
    usual |= {"filters": FiltersConfig(near_duplicates=near), "out": str(tmp_path / name)}
    return preparing.settings("books", tmp_path / "corpus", tmp_path / "vocab", **(usual | more))


@pytest.mark.parametrize("seed", range(examples(3, quick=1)))
@pytest.mark.parametrize("near", [None, pytest.param(0.5, marks=pytest.mark.slow)])
def test_a_corpus_that_changes_gives_the_bytes_of_a_run_from_scratch(seed, near, vocab, corpus, tmp_path, reads):
    draw = random.Random(seed)
    made(config(tmp_path, "kept", near, keep_reading=True))
    whole = len(reads)
    for step in range(3):
        change(corpus, draw)
        how = draw.choice(
            [{"pairs": "nsp", "seed": step}, {"sequence_length": 64}, {"pairs": "none", "packing": "best_fit"}]
        )
        how["filters"] = FiltersConfig(near_duplicates=near and draw.choice([0.4, 0.8]))
        reads.clear()
        kept = made(config(tmp_path, "kept", keep_reading=True, **how))
        assert len(reads) <= 4 < whole
        assert kept == made(config(tmp_path, f"scratch{step}", **how))
        assert not (tmp_path / f".scratch{step}.reading").exists()


@pytest.mark.parametrize("workers", WORKERS)
def test_a_start_after_one_that_failed_reads_the_rest(workers, vocab, corpus, tmp_path, reads):
    runner = RunnerConfig(task_bytes=600, workers=workers)
    broken = corpus / "zz.txt"
    broken.write_bytes(bytes(range(256)) * 4)
    with refused(InputError, path=str(broken)):
        made(config(tmp_path, "failed", runner=runner))
    left = list((tmp_path / ".failed.reading").glob("*.unit"))
    assert left
    broken.write_text("Word1 word2.")
    reads.clear()
    assert made(config(tmp_path, "failed")) == made(config(tmp_path, "scratch"))
    assert not (tmp_path / ".failed.reading").exists()
    again = [path for path in reads if path.parent.name == ".failed.reading"]
    assert not set(again) & set(left)
    assert len(again) <= 3 if workers == 1 else again


def test_other_settings_of_reading_and_force_read_again(vocab, corpus, tmp_path, reads):
    made(config(tmp_path, "kept", keep_reading=True))
    whole = len(reads)
    for more in ({"minimum_characters": 300}, {"force": True}, {"filters": FiltersConfig(maximum_characters=500)}):
        reads.clear()
        made(config(tmp_path, "kept", keep_reading=True, **more))
        assert len(reads) == whole
        assert {path.name for path in reads} == {path.name for path in (tmp_path / ".kept.reading").iterdir()}


def test_code_and_tables_of_the_package_decide_what_is_read(vocab, corpus, tmp_path, monkeypatch):
    """What an upgrade reads otherwise, also by data alone, is not taken from what was read before it."""
    (tmp_path / "package" / "text").mkdir(parents=True)
    monkeypatch.setattr(plan, "__file__", str(tmp_path / "package" / "preparation" / "plan.py"))
    keys = set()
    for name in ("a.py", "text/b.py", "text/c.yaml"):
        for content in ("1", "2"):
            (tmp_path / "package" / name).write_text(content)
            keys.add(make_plan(config(tmp_path, "kept"), tmp_path / "kept").reading)
    assert len(keys) == 6


def test_what_was_damaged_is_read_again(vocab, corpus, tmp_path, reads):
    before = made(config(tmp_path, "kept", keep_reading=True))
    unit = sorted((tmp_path / ".kept.reading").iterdir())[1]
    whole = unit.read_bytes()
    middle = len(whole) // 2
    for data in (whole[:-5], whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :], b""):
        unit.write_bytes(data)
        reads.clear()
        shutil.rmtree(tmp_path / "kept")
        assert (made(config(tmp_path, "kept", keep_reading=True)), reads) == (before, [unit])


def test_files_of_filters_count_by_what_they_say(vocab, corpus, tmp_path, reads):
    banned = tmp_path / "banned.txt"
    for pattern in ("nothing", "word5 word6"):
        banned.write_text(pattern)
        reads.clear()
        made(config(tmp_path, "kept", keep_reading=True, filters=FiltersConfig(banned_file=str(banned))))
        assert len(reads) > 5


def gone(folder):
    """Return the hashes of removed documents by id."""
    rows = pa.ipc.open_file(folder / "_dropped.feather").read_all().to_pylist()
    return {row["id"]: row["reason"].split()[1] for row in rows if row["reason"].startswith("removed ")}


@pytest.mark.parametrize("near", [None, pytest.param(0.4, marks=pytest.mark.slow)])
def test_a_removed_document_is_gone_with_its_equals_without_reading_again(near, vocab, corpus, tmp_path, reads):
    """By its id, or by its text's hash; the shards are those of a corpus without them."""
    for name in ("aa", "bb", "zz"):
        (corpus / f"{name}.txt").write_text(EQUAL)
    for index in range(5):  # what may be a near duplicate of a removed one and of no other
        (corpus / f"like{index}.txt").write_text(EQUAL.replace(WORDS[index], WORDS[59 - index]))
    equals, other = [str(corpus / f"{name}.txt") for name in ("aa", "bb", "zz")], str(corpus / "like2.txt")

    def removed(out, *lines):
        (tmp_path / "remove.txt").write_text("".join(f"{line}\n" for line in lines))
        found = FiltersConfig(near_duplicates=near, remove=str(tmp_path / "remove.txt"))
        return made(config(tmp_path, out, keep_reading=out == "kept", filters=found))

    made(config(tmp_path, "kept", near, keep_reading=True))
    reads.clear()
    for equal in equals:  # whichever of them is read first
        kept = removed("kept", equal, other, "nothing")
        assert (equal == equals[0]) <= (not reads)
        units = b"".join(path.read_bytes() for path in (tmp_path / ".kept.reading").iterdir())
        assert [str(name).encode() in units for name in (corpus / "like0.txt", equal, other)] == [True, False, False]
        hashes = gone(tmp_path / "kept")
        assert hashes.keys() == {equal, other}
        figures = require_manifest(tmp_path / "kept", "prepare", "kept").figures
        assert (figures["removed"], figures["filtered"]["removed"]) == ({equal: 1, other: 1}, 2)
        assert any("nothing" in warning for warning in figures["warnings"])
    assert kept == removed("scratch", equal, other, "nothing")
    assert shards(kept) == shards(removed("hashed", *hashes.values()))
    assert gone(tmp_path / "hashed").keys() == {*equals, other}
    for path in (*equals, other):
        Path(path).unlink()
    assert shards(kept) == shards(made(config(tmp_path, "without", near)))


def shards(files):
    """Return the checksums of the shards among a stage's files."""
    return {name: checksum for name, checksum in files.items() if name.endswith(".arrow")}


@pytest.mark.slow
@pytest.mark.store
def test_another_machine_takes_up_what_was_read_for_a_store(bucket, vocab, corpus, tmp_path, reads):
    out = {"out": f"{bucket}/run/prepare", "mirror": str(tmp_path / "a")}
    broken = corpus / "zz.txt"
    broken.write_bytes(bytes(range(256)) * 4)
    with refused(InputError, path=str(broken)):
        made(config(tmp_path, "", **out))
    kept = {info.key.rpartition("/")[2] for info in objects.below(f"{bucket}/run/.prepare.reading")}
    assert kept == {path.name for path in reads}
    broken.write_text("Word1 word2.")
    for mirror, keep in (("b", True), ("c", True), ("d", False)):
        reads.clear()
        out |= {"mirror": str(tmp_path / mirror), "keep_reading": keep, "seed": {"b": 0, "c": 1, "d": 0}[mirror]}
        again = made(config(tmp_path, "", **out))
        assert len(reads) <= (3 if mirror == "b" else 0)
    assert again == made(config(tmp_path, "scratch"))
    assert not objects.below(f"{bucket}/run/.prepare.reading")
