"""Tokens that were read are in shards, or lost for a reason that has a name."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from pipeline import prepare
from pipeline.beam import steps
from pipeline.config import FiltersConfig, RunnerConfig
from pipeline.errors import InputError
from pipeline.preparation.plan import for_workers, make_plan
from pipeline.records.metrics import CorpusCounts
from pipeline.shards import open_folder
from pipeline.shards.holdout import document_hash
from pipeline.tokenization.wordpiece import SPECIAL
from tests.pipeline.preparation.test_shuffle import begun
from tests.support import preparing
from tests.support.refusals import refused

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"]  # 720


def made(folder, texts, **more):
    """Return the account of a run over these documents, one per paragraph."""
    preparing.vocabulary(folder, [*WORDS, "."])
    (folder / "a.txt").write_text("\n\n".join(texts))
    usual = {"options": {"document": "paragraph"}, "minimum_characters": 0, "validation_share": 0}
    usual["sequence_length"] = 32
    out = folder / "made"
    out.mkdir()
    config = preparing.settings("text", folder / "a.txt", folder, workdir=str(folder), **(usual | more))
    return CorpusCounts.from_json(prepare.make(config, out).figures)


def transcript(number):
    """Return two lines of 90 words without a full stop, other ones for each `number`."""
    return "\n".join(" ".join(WORDS[k * 90 : (k + 1) * 90]) for k in (2 * number, 2 * number + 1))


def story(number, sentences, words=5):
    """Return a text of short sentences, another one for each `number`."""
    drawn = itertools.cycle(WORDS[number:] + WORDS[:number])
    return "\n".join(" ".join(itertools.islice(drawn, words)) + "." for _ in range(sentences))


def size(text):
    return len(text.split()) + text.count(".")


@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
def test_words_without_full_stops_reach_the_shards(tmp_path, pairs):
    counts = made(tmp_path, [transcript(number) for number in range(4)], pairs=pairs)
    tokens = np.concatenate([shard.values for shard in open_folder(tmp_path / "made", "train")])
    used = len(set(tokens[tokens >= len(SPECIAL)].tolist()))
    assert used == counts.totals["tokens_used"] >= 0.97 * 720


PAIRS = [{"pairs": "sop"}, {"pairs": "none"}, {"pairs": "none", "packing": "best_fit"}]
PAIRS += [{"pairs": "nsp", "duplicates": 3}, {"pairs": "none", "cross_documents": False, "duplicates": 2}]


@pytest.mark.parametrize("more", PAIRS)
def test_tokens_read_are_in_shards_or_lost_by_name(tmp_path, more):
    pytest.importorskip("rensa")
    texts = [story(number, 2 + number % 9, 4 + number % 17) for number in range(60)]
    (tmp_path / "gone.txt").write_text(document_hash(texts[0]).hex())
    texts += [texts[5], texts[5], texts[16] + "\nbab."]
    filters = FiltersConfig(near_duplicates=0.5, remove=str(tmp_path / "gone.txt"))
    counts = made(tmp_path, texts, validation_share=0.2, filters=filters, **more)
    totals, lost = counts.totals, counts.lost
    assert totals["tokens_read"] == totals["tokens_used"] + sum(lost.values())
    assert totals["tokens"] == totals["tokens_used"] + lost["truncated"] + lost["no pair"]
    assert (lost["duplicate"], lost["filtered"] >= size(texts[0])) == (2 * size(texts[5]), True)
    assert (lost["truncated"] > 0) == (more["pairs"] != "none")
    assert bool(counts.lost_line) == (lost["truncated"] > 0.02 * counts.tokens)


@pytest.mark.parametrize("texts", [[story(0, 200)], [story(number, 1) for number in range(60)]])
def test_pairs_of_one_kind_are_refused(tmp_path, texts):
    with refused(InputError, "pairs=none", key="pairs"):
        made(tmp_path, texts)


def test_few_pairs_are_not_judged(tmp_path):
    assert made(tmp_path, [story(0, 20)]).one_kind is None


# Workers that were started in another directory find what relative paths name.


def config(name, options):
    filters = FiltersConfig(decontaminate=["task"], banned_file="banned")
    more = {"runner": RunnerConfig(name=name, options=options, exchange="files"), "filters": filters}
    return preparing.settings("lines", "texts/*.txt", "vocab", out="out", minimum_characters=0, **more)


@pytest.mark.parametrize(
    ("name", "options"), [("spark", {"environment_type": "EXTERNAL"}), ("flink", {"environment_type": "EXTERNAL"})]
)
def test_tasks_in_another_directory_read_and_write_the_same_files(tmp_path, monkeypatch, name, options):
    for folder in ("texts", "vocab", "task", "out", "elsewhere"):
        (tmp_path / folder).mkdir()
    preparing.vocabulary(tmp_path / "vocab", "abc")
    (tmp_path / "texts" / "a.txt").write_text("a b c.\nb c a.\nc b a.\n\nb b c.\nc c.\n")
    (tmp_path / "task" / "dev.tsv").write_text(f"{'x ' * 13}\ty\n")
    (tmp_path / "banned").write_text("zzz\n")
    monkeypatch.chdir(tmp_path)
    given = config(name, options)
    plan = make_plan(given, Path("out"))
    assert (given.corpus.path, given.vocab) == ("texts/*.txt", "vocab")
    monkeypatch.chdir(tmp_path / "elsewhere")
    task, (element,) = begun(plan)
    for write, part in list(task.process(element)):
        list(steps.WriteShards(plan).process((write, [part])))
    assert not plan.error_note.exists(), plan.error_note.read_text()
    assert list((tmp_path / "out").glob("*.arrow"))
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("name", "options"), [("local", {}), ("prism", {}), ("spark", {"environment_type": "LOOPBACK"})]
)
def test_workers_of_this_process_get_paths_as_typed(name, options):
    given = config(name, options)
    assert for_workers(given) == given


def test_addresses_stay_as_they_are():
    given = config("flink", {})
    given.corpus.path = "s3://bucket/texts"
    assert for_workers(given).corpus.path == given.corpus.path
