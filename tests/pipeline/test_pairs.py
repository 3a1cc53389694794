"""Pairs: of documents that prepare trains on, as long as the model reads; a retrieval set of the others."""

import json
import re
from collections import Counter

import pytest
from pyarrow import parquet as pq

from pipeline import pairs, readers
from pipeline.config import CorpusConfig, PairsConfig
from pipeline.errors import ConfigError, InputError
from pipeline.evaluation import beir, examples
from pipeline.pairs import Passages
from pipeline.shards.holdout import document_hash, is_held_out
from pipeline.stages import stage
from pipeline.text import clean
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece
from tests.model.served_folders import make_bpe
from tests.model.sizes import small
from tests.pipeline.evaluation.letter_model import write_letter_model
from tests.support.finished import manifest
from tests.support.refusals import refused

WORDS = [*SPECIAL, *"abcdefgh", ".", *(f"##{letter}" for letter in "abcdefgh")]
SENTENCE = "A bed had a bad cab. "
SHARE = 0.3


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A model that has learnt 24 tokens, whose tokens are letters."""
    return write_letter_model(tmp_path_factory, small(len(WORDS), positions=24), WORDS)


def letters(number):
    return "".join("abcdefgh"[int(digit)] for digit in f"{number:o}")


def write_corpus(folder, count=60):
    """Articles of WikiExtractor with two sections and a list, one of them twice; the texts by id."""
    found = {}
    parts = []
    for number in range(count):
        name = letters(number)
        body = [f"{name} first. " + 5 * SENTENCE, "History", f"{name} second. " + 5 * SENTENCE, "Bed", "Cab", "Fed"]
        found[str(number)] = "\n".join(body)
        parts.append(f'<doc id="{number}" url="" title="Title {name}">\nTitle {name}\n\n{found[str(number)]}\n</doc>\n')
    folder.mkdir(parents=True)
    (folder / "wiki_00").write_text("".join([*parts, parts[0].replace('id="0"', 'id="copy"')]))
    return found


def config_of(tmp_path, model, **settings):
    corpus = CorpusConfig(name="w", reader="wikiextractor", path=str(tmp_path / "text"))
    common = {"workdir": str(tmp_path), "out": str(tmp_path / "pairs"), "source": "none", "validation_share": SHARE}
    return PairsConfig(**common | {"corpus": corpus, "pretrained": str(model), **settings})


def rows_of(tmp_path):
    return [json.loads(line) for line in (tmp_path / "pairs" / "pairs.jsonl").read_text().splitlines()]


def test_pairs_are_of_documents_that_prepare_trains_on_and_queries_of_the_others(tmp_path, model_folder):
    texts = write_corpus(tmp_path / "text")
    made = stage.run("pairs", config_of(tmp_path, model_folder), pairs.make)
    held = {f"w:{name}" for name, text in texts.items() if is_held_out(document_hash(clean.clean(text)), SHARE)}
    rows = rows_of(tmp_path)
    assert {row["document"] for row in rows} == {f"w:{name}" for name in texts} - held
    assert Counter(row["kind"] for row in rows) == {"title": 60 - len(held), "heading": 60 - len(held)}
    assert made.figures["documents"] == {
        "read": 61, "duplicate": 1, "held out": len(held), "to train on": 60 - len(held)
    }  # fmt: skip
    found = beir.read(tmp_path / "pairs", examples.task_of("retrieval"))
    documents = [json.loads(line) for line in (tmp_path / "pairs/retrieval/corpus.jsonl").read_text().splitlines()]
    of = {row["_id"]: row["document"] for row in documents}
    assert {of[name] for judged in found.judged.values() for name in judged} == held
    assert sorted(found.queries.values()) == sorted(f"Title {letters(int(name[2:]))}" for name in held)
    assert len(found.documents) == 60


def test_a_pair_is_a_title_or_a_heading_and_a_passage_that_the_model_reads_whole(tmp_path, model_folder):
    write_corpus(tmp_path / "text")
    stage.run("pairs", config_of(tmp_path, model_folder, kinds=["heading", "title", "neighbour"]), pairs.make)
    wordpiece = WordPiece.load(model_folder)
    rows = [row for row in rows_of(tmp_path) if row["document"] == rows_of(tmp_path)[0]["document"]]
    name = letters(int(rows[0]["document"][2:]))
    by_kind = {row["kind"]: row for row in rows}
    assert by_kind["title"]["anchor"] == f"Title {name}"
    assert by_kind["title"]["positive"].startswith(f"{name} first.")
    assert by_kind["heading"]["anchor"] == f"Title {name}: History"
    assert by_kind["heading"]["positive"].startswith(f"{name} second.")
    assert max(wordpiece.encode([row["positive"] for row in rows_of(tmp_path)])[1]) <= 22
    assert max(Counter((row["kind"], row["document"]) for row in rows_of(tmp_path)).values()) <= 3


def test_both_files_have_the_same_rows_in_every_run(tmp_path, model_folder):
    write_corpus(tmp_path / "text")
    stage.run("pairs", config_of(tmp_path, model_folder, rows=10, queries=5), pairs.make)
    rows = rows_of(tmp_path)
    assert pq.read_table(tmp_path / "pairs" / "pairs.parquet").to_pylist() == rows
    assert Counter(row["kind"] for row in rows) == {"title": 10, "heading": 10}
    lines = (tmp_path / "text" / "wiki_00").read_text().split("</doc>\n")
    (tmp_path / "text" / "wiki_00").write_text("</doc>\n".join([*reversed(lines[:-1]), ""]))
    stage.run("pairs", config_of(tmp_path, model_folder, rows=10, queries=5, force=True), pairs.make)
    again = rows_of(tmp_path)
    assert {row["anchor"] for row in again} == {row["anchor"] for row in rows}  # whatever the order of the files


def test_a_title_is_no_part_of_its_passage_and_comes_a_few_times_alone(tmp_path, model_folder):
    rows = [
        {"title": "Be\u0301d", "text": f"BE\u0301D\n{letters(number)} first. {5 * SENTENCE}"} for number in range(40)
    ]
    rows += [{"title": f"Cab {number}", "text": f"{letters(number)} cab. {5 * SENTENCE}"} for number in range(9)]
    (tmp_path / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = CorpusConfig(name="w", reader="jsonl", path=str(tmp_path / "text.jsonl"))
    stage.run("pairs", config_of(tmp_path, model_folder, corpus=corpus), pairs.make)
    found = [row for row in rows_of(tmp_path) if "Cab" not in row["anchor"]]
    assert [row["anchor"] for row in found] == ["B\u00e9d"] * 3  # composed, as the text
    assert all("first" in row["positive"] and "B\u00c9D" not in row["positive"] for row in found)
    asked = beir.read(tmp_path / "pairs", examples.task_of("retrieval")).queries.values()
    assert {*asked} <= {f"Cab {number}" for number in range(9)}  # what is learnt is no query


def test_removed_documents_give_no_pairs(tmp_path, model_folder):
    write_corpus(tmp_path / "text")
    (tmp_path / "gone").write_text("w:0\nw:1\n")
    stage.run("pairs", config_of(tmp_path, model_folder, remove=str(tmp_path / "gone")), pairs.make)
    anchors = {row["anchor"] for row in rows_of(tmp_path)}
    assert not anchors & {"Title a", "Title b"}


def test_the_first_passage_may_be_below_a_heading(model_folder):
    passages, text = Passages(WordPiece.load(model_folder), 24), f"History\n{5 * SENTENCE}"
    first, second, *_ = pairs.pairs_of(readers.Document("x", text, title="Bed"), text, "en", passages, 3)
    assert (first.anchor, first.kind, second.anchor) == ("Bed", "title", "Bed: History")
    assert first.positive == second.positive


def test_passages_are_whole_lines_where_a_line_is_a_sentence(model_folder):
    passages, line = Passages(WordPiece.load(model_folder), 24), "A bed fe. A cab fe."
    assert passages.of([line, line], "en", by_lines=True) == [line, line] != passages.of([line, line], "en")


@pytest.mark.parametrize(
    ("settings", "key"), [({"validation_share": 1e-9}, "validation_share"), ({}, "kinds"), ({"seed": 1}, "kinds")]
)
def test_what_gives_no_pairs_is_said(tmp_path, model_folder, settings, key):
    write_corpus(tmp_path / "text")
    if key == "kinds":
        text = re.sub("Title [a-h]+", "Title", (tmp_path / "text" / "wiki_00").read_text())  # no query of its own
        (tmp_path / "text" / "wiki_00").write_text(text if settings else '<doc id="1" title="x">\nx\n</doc>\n')
    with refused(InputError, key=key):
        stage.run("pairs", config_of(tmp_path, model_folder, **settings), pairs.make)


def test_passages_are_read_whole_where_a_space_is_a_token(tmp_path):
    wordpiece = WordPiece.load(make_bpe(tmp_path / "vocab"))
    passages = Passages(wordpiece, 24)
    text = 30 * "cat the uber. "
    found = [*passages.of([text], "en"), passages.cut(text)]
    assert 15 < max(wordpiece.encode(found)[1]) <= 22


def test_what_the_model_was_trained_on_gives_no_queries(tmp_path):
    for made_by, config in (
        ("convert", {"train": str(tmp_path / "train")}),
        ("train", {"data": {"dir": str(tmp_path / "prepare")}}),
        ("prepare", {"validation_share": SHARE / 2}),
    ):
        (tmp_path / made_by).mkdir()
        manifest(made_by, config=config).write(tmp_path / made_by)
    with refused(ConfigError, key="validation_share"):
        pairs.draw(config_of(tmp_path, tmp_path / "convert"))


def test_a_sentence_that_is_too_long_is_cut_between_words(model_folder):
    passages = Passages(WordPiece.load(model_folder), 12)
    assert passages.of([" ".join(["abc"] * 20) + "."], "en") == ["abc abc abc"]
    assert passages.of([" ".join(["abcd" * 5] + ["abc"] * 20) + "."], "en") == ["abcdabcdab"]  # the first is too long


TITLED = [(f"{5 * SENTENCE}\nHistory\n{5 * SENTENCE}", ["", "History"]), (f"History\n{5 * SENTENCE}", ["", "History"])]
TITLED += [(f"{5 * SENTENCE}\n{lines}\n{5 * SENTENCE}", [""]) for lines in ("Bed\nCab", "He said:")]
TITLED += [(f"{text}\n{line}\n{text}", ["", line]) for text, line in ((90 * "ก", "ประวัติ"), (90 * "क" + "।", "की"))]


@pytest.mark.parametrize(("text", "expected"), TITLED)
def test_a_heading_is_a_short_line_between_prose(text, expected):
    assert [heading for heading, _ in pairs.sections(text)] == expected
