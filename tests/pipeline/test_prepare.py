"""A corpus becomes shards: every document accounted for, the same bytes however it is run."""

import json
import re
import subprocess
import sys
import time

import numpy as np
import pytest

from pipeline import shards
from pipeline.beam import steps
from pipeline.prepare import make
from pipeline.records.manifest import MANIFEST, Manifest, require_manifest
from pipeline.records.metrics import CorpusCounts
from pipeline.stages import stage
from pipeline.text import clean
from pipeline.tokenization.coverage import Coverage
from tests.support import forked, preparing
from tests.support.examples import WORKERS

SENTENCES = """The river runs past the old mill.
Nobody knew where the road would lead.
Rain fell on the roofs of the town.
She read the letter twice before supper.
A clock struck nine in the empty hall.
They sold apples and bread at the market.""".splitlines()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Forty small books, two of them the same, one empty, one of a single word."""
    folder = tmp_path_factory.mktemp("books")
    for number in range(40):
        picked = [SENTENCES[(number * k + k // 3) % 6] + f" {number} {k}." for k in range(4, 60)]
        (folder / f"{number:02}.txt").write_text("\n\n".join(picked))
    (folder / "same.txt").write_text((folder / "07.txt").read_text())
    (folder / "empty.txt").write_text("")
    (folder / "word.txt").write_text("word")
    return folder


def run(*words):
    done = forked.module(*words)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "nothing but progress, and that only on a terminal"


@pytest.fixture(scope="module")
def vocab(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "vocab"
    run("pipeline.vocab", "+corpus=books", f"corpus.path={corpus}", "size=300", f"out={out}")
    return out


def command(corpus, vocab, out, *more):
    sizes = ["validation_share=0.2", "split_bytes=8000", "shard_bytes=30000", "runner.task_bytes=1"]
    places = [f"corpus.path={corpus}", f"vocab={vocab}", f"out={out}"]
    return ["pipeline.prepare", "+corpus=books", *places, *sizes, *more]


def prepare(corpus, vocab, out, *more):
    run(*command(corpus, vocab, out, *more))
    return Manifest.read(out)


@pytest.fixture(scope="module")
def one(corpus, vocab, tmp_path_factory):
    """What one worker makes of it."""
    out = tmp_path_factory.mktemp("one") / "prepare"
    prepare(corpus, vocab, out)
    return out


def test_every_document_is_accounted_for(one):
    figures = require_manifest(one, "prepare", "one").figures
    documents = figures["documents"]
    assert (documents["read"], documents["duplicate"], documents["written"]) == (43, 1, 40)
    assert documents.get("empty", 0) + documents.get("short", 0) == 2
    train = shards.open_folder(one, "train")
    assert sum(shard.rows for shard in train) == figures["totals"]["train"] > 100
    assert max((shard.offsets[1:] - shard.offsets[:-1]).max() for shard in train) <= 125


@pytest.mark.parametrize("workers", WORKERS)
def test_what_is_left_out_as_equal_is_not_counted_as_kept(vocab, tmp_path, workers):
    """Neither in one reading task nor in several, of equal and of nearly equal documents."""
    texts = [f"{' '.join(SENTENCES[number % 3 :])} Number {number}." * 4 for number in range(30)]
    found = {}
    for name, every in (("once", texts), ("often", texts + texts[3:9] * 12)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(f"{json.dumps({'text': text})}\n" for text in every))
        words = [f"corpus.path={path}", f"vocab={vocab}", f"out={tmp_path / name}", f"runner.workers={workers}"]
        words += ["validation_share=0.2", "pairs=none", "split_bytes=8000", "cross_documents=false"]
        run("pipeline.prepare", "+corpus=jsonl", *words)
        found[name] = require_manifest(tmp_path / name, "prepare", name)
    once, often = (CorpusCounts.of(found[name]) for name in ("once", "often"))
    assert (once.found, often.found, often.documents["duplicate"]) == (30, 102, 72)
    assert once.tokens == often.tokens == sum(shard.tokens for shard in often.shards.values())
    assert once.totals["sentences"] == often.totals["sentences"]
    assert f" {once.tokens:,} tokens" in found["often"].summary


def test_a_document_that_an_engine_loses_fails_the_job(corpus, vocab, tmp_path, monkeypatch):
    run_graph = steps.run

    def lossy(work):
        run_graph(work)
        path = work.write_account(0)
        part = json.loads(path.read_text())
        part["documents"]["written"] -= 1
        path.write_text(json.dumps(part))

    monkeypatch.setattr(steps, "run", lossy)
    config = preparing.settings("books", corpus, vocab, source=str(tmp_path), out=str(tmp_path / "out"))
    with pytest.raises(RuntimeError, match="43 documents"):
        stage.run("prepare", config, make)
    assert not (tmp_path / "out").exists()


def test_the_bytes_do_not_depend_on_workers_or_file_order(corpus, vocab, one, tmp_path):
    expected = require_manifest(one, "prepare", "one")
    two = prepare(corpus, vocab, tmp_path / "two", "runner.workers=2")
    four = prepare(corpus, vocab, tmp_path / "four", "runner.workers=4")
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    for number, path in enumerate(sorted(corpus.iterdir(), reverse=True)):
        (renamed / f"{number:03}.txt").write_bytes(path.read_bytes())
    other = prepare(renamed, vocab, tmp_path / "other")
    assert expected.files == two.files == four.files
    assert expected.figures["shards"] == other.figures["shards"]
    assert len(expected.files) > 4
    assert expected.figures["lengths"] == two.figures["lengths"] == four.figures["lengths"]
    assert expected.figures["documents"] == four.figures["documents"]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_run_over_what_a_killed_one_left_gives_the_same_bytes(root, corpus, vocab, one, tmp_path, workers):
    expected = require_manifest(one, "prepare", "one")
    more = [f"runner.workers={workers}", "split_bytes=1000"]  # many splits: time enough to kill it
    words = command(corpus, vocab, tmp_path / "killed", *more)
    process = subprocess.Popen([sys.executable, "-m", *words], cwd=root)
    scratch = tmp_path / ".killed.tmp" / ".scratch"
    while not list(scratch.glob("read-*.json")):
        assert process.poll() is None, "it was over before it could be killed"
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert list(scratch.glob("read-*.json"))
    assert not (tmp_path / "killed").exists()
    again = prepare(corpus, vocab, tmp_path / "killed", *more)
    assert (again.files, again.figures["documents"]) == (expected.files, expected.figures["documents"])
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {*again.files, MANIFEST}
    assert {path.name for path in tmp_path.iterdir()} == {"killed", ".killed.lock"}


def test_all_documents_can_be_held_out(corpus, vocab, one, tmp_path):
    figures = prepare(corpus, vocab, tmp_path / "held", "validation_share=1").figures
    assert [name.partition("-")[0] for name in figures["shards"]] == ["validation"] * len(figures["shards"])
    assert figures["totals"]["validation_documents"] == figures["documents"]["written"] == 40
    assert figures["warnings"] == []


def test_another_seed_gives_other_pairs(corpus, vocab, one, tmp_path):
    expected = require_manifest(one, "prepare", "one")
    other = prepare(corpus, vocab, tmp_path / "other", "seed=1")
    assert expected.files.keys() == other.files.keys()
    assert expected.files != other.files


@pytest.mark.parametrize("pairs", ["sop", "none"])
def test_other_objectives_have_shards_of_their_own(corpus, vocab, tmp_path, pairs):
    figures = prepare(corpus, vocab, tmp_path / "a", f"pairs={pairs}").figures
    found = shards.open_folder(tmp_path / "a", "train")
    lengths = np.concatenate([np.diff(shard.offsets) for shard in found])
    a_len = np.concatenate([shard.a_len for shard in found])
    swapped = np.concatenate([shard.is_random_next for shard in found])
    assert ({shard.info.pairs for shard in found}, figures["documents"]["written"]) == ({pairs}, 40)
    if pairs == "sop":
        assert lengths.max() <= 125
        assert (a_len < lengths).all()
        assert 0.4 < swapped.mean() < 0.6
    else:
        assert 120 < lengths.max() <= 126
        assert (a_len == lengths).all()
        assert not swapped.any()


def test_the_account_says_how_full_sequences_are_and_how_many_documents_are_cut(corpus, vocab, tmp_path):
    words = ("pairs=none", "sequence_length=2048")
    cut = {}
    for packing in ("sequential", "best_fit"):
        out = tmp_path / packing
        found = prepare(corpus, vocab, out, *words, f"packing={packing}").figures["packing"]
        stored = [shard for split in shards.SPLITS for shard in shards.open_folder(out, split)]
        places = 2046 * sum(shard.rows for shard in stored)
        tokens = sum(len(shard.values) for shard in stored)
        assert found["padding_share"] == pytest.approx(1 - tokens / places)
        assert found["cut_share"] == found["cut"] / 40
        cut[packing] = found["cut"]
    assert cut["best_fit"] == 0 < cut["sequential"]


def test_a_share_that_holds_out_nothing_is_refused_with_one_that_would(corpus, vocab, tmp_path):
    words = command(corpus, vocab, tmp_path / "out", "validation_share=0.001")
    done = forked.module(*words)
    assert done.returncode == 2
    assert "validation_share=0.001: " in done.stderr
    (share,) = re.findall(r"set validation_share=(\S+) ", done.stderr)
    assert f"prepare.validation_share={share} tasks.validation_share={share})" in done.stderr
    made = prepare(corpus, vocab, tmp_path / "out", f"validation_share={share}")
    assert (made.figures["totals"]["validation_documents"], made.figures["warnings"]) == (4, [])
    assert shards.open_folder(tmp_path / "out", "validation")


PAGE = "<page><title>{}</title><ns>{}</ns><id>{}</id><revision><id>1</id><text>{}</text></revision></page>"


def test_the_line_says_what_was_passed_over(one, vocab, tmp_path):
    line = require_manifest(one, "prepare", "one").summary
    assert line.startswith("40 of 43 documents: 1 empty, 1 short, 1 duplicate; "), line
    pages = [PAGE.format(f"T{n}", 0, n, f"{' '.join(SENTENCES)} Page {n}. " * 3) for n in range(8)]
    pages += [PAGE.format(f"Talk:{n}", 1, 20 + n, "Words.") for n in range(3)]
    pages += [PAGE.format("R", 0, 30, "#REDIRECT [[T1]]"), PAGE.format("E", 0, 31, "")]
    (tmp_path / "a.xml").write_text(f"<mediawiki>{''.join(pages)}</mediawiki>")
    words = ["+corpus=wiki", f"corpus.path={tmp_path}/a.xml", f"vocab={vocab}"]
    run("pipeline.prepare", *words, f"out={tmp_path}/a", "validation_share=0")
    line = require_manifest(tmp_path / "a", "prepare", "out").summary
    assert line.startswith("8 of 13 pages: 3 other namespaces, 1 redirect, 1 empty; "), line
    (tmp_path / "b.xml").write_text(f"<mediawiki>{''.join(pages[8:])}</mediawiki>")
    words[1] = f"corpus.path={tmp_path}/b.xml"
    done = forked.module("pipeline.prepare", *words, f"out={tmp_path}/b")
    assert done.returncode == 2
    assert "0 of 5 pages: 3 other namespaces, 1 redirect, 1 empty" in done.stderr
    (tmp_path / "a.txt").write_text(f"{' '.join(SENTENCES)}\n" + "".join(f"Tweet {n}.\n" for n in range(9)))
    words = ["+corpus=text", f"corpus.path={tmp_path}/a.txt", "corpus.options.document=line", f"vocab={vocab}"]
    run("pipeline.prepare", *words, f"out={tmp_path}/c", "validation_share=0", "pairs=none")
    line = require_manifest(tmp_path / "c", "prepare", "out").summary
    assert line.startswith("1 of 10 documents: 9 short by minimum_characters=50; "), line
    (tmp_path / "a.txt").write_text("Tweet.\nAnother tweet.\n")
    done = forked.module("pipeline.prepare", *words, f"out={tmp_path}/d", "minimum_characters=0", "pairs=sop")
    assert "2 short by pairs=sop; for documents that count as short set pairs=none" in done.stderr


def test_the_line_says_what_the_vocabulary_does_not_know(one, vocab, tmp_path):
    assert not require_manifest(one, "prepare", "one").figures["totals"]["unknown_characters"]
    (tmp_path / "a.txt").write_text(f"{'ข' * 150} {' '.join(SENTENCES)}")
    words = ["+corpus=text", f"corpus.path={tmp_path}/a.txt", f"vocab={vocab}"]
    run("pipeline.prepare", *words, f"out={tmp_path}/out", "validation_share=0")
    made = require_manifest(tmp_path / "out", "prepare", "out")
    assert made.figures["totals"]["unknown_characters"] == 150
    assert Coverage.of(made.figures["totals"]).line.partition(";")[0] in made.summary
    assert Coverage.of(made.figures["totals"]).warning in made.figures["warnings"]


def test_shards_know_the_words_of_their_text(corpus, vocab, one, tmp_path):
    """Of packed sentences exactly, however often they are there; of pairs by their tokens."""
    texts = {clean.clean(path.read_text()) for path in corpus.glob("[0-9]*.txt")}
    words = sum(len(text.split()) for text in texts)
    made = prepare(corpus, vocab, tmp_path / "twice", "pairs=none", "duplicates=2")
    found = sum(shard["words"] for name, shard in made.figures["shards"].items())
    assert found == pytest.approx(2 * words)
    pairs = Manifest.read(one)
    assert all(shard["words"] > 0 for shard in pairs.figures["shards"].values())
    assert sum(shard["text_words"] for shard in pairs.figures["shards"].values()) == words
    refused = command(corpus, vocab, tmp_path / "limit", f"maximum_words={words - 1}")
    done = forked.fresh("-m", *refused)
    assert done.returncode == 2
    assert f"error: maximum_words={words - 1}: " in done.stderr
