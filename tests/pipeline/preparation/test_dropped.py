"""`_dropped.feather` says which documents were left out, and why."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pipeline import prepare
from pipeline.config import CorpusConfig, FiltersConfig, RunnerConfig
from pipeline.preparation import dropped, shuffle
from pipeline.preparation.documents import KeptDocument
from pipeline.preparation.shuffle import nested, take
from pipeline.text.clean import clean
from pipeline.text.sentences import split_sentences
from tests.support import preparing

COUNT = 40
WORDS = ["river", "mill", "road", "rain", "roof", "town", "letter", "supper", "clock", "hall"]


def own(number):
    """A text of several sentences; every other word is in no other text."""
    drawn = np.random.default_rng(number).choice(WORDS, (9, 4))
    return " ".join(" ".join(f"only{number} {word}" for word in words) + "." for words in drawn)


ROWS = [*map(own, range(COUNT)), "", "Hello.", own(3), own(4) * 30, "1 2 3 " * 40]
ROWS += [own(5).replace("only5", "lorem ipsum"), own(6) + " Said that the river was old and grey."]
ROWS.append(own(7) + " Also this.")
FILTERS = {"maximum_characters": 3000, "maximum_non_letters": 0.5, "banned": ["(?i)lorem"], "ngram": 6}
FILTERS |= {"near_duplicates": 0.7, "shingle": 3}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A corpus with one document of each outcome, a vocabulary and an evaluation file."""
    folder = tmp_path_factory.mktemp("world")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in ROWS)
    (folder / "corpus.jsonl").write_text(lines)
    preparing.vocabulary(folder / "vocab", [*WORDS, *(f"only{number}" for number in range(COUNT)), "."])
    (folder / "evaluation.jsonl").write_text('{"text": "said that the river was old"}\n')
    return folder


def config(world, out, **more):
    filtering = FILTERS | {"decontaminate": [str(world / "evaluation.jsonl")]}
    settings = {"out": str(out), "filters": FiltersConfig(**filtering), "split_bytes": 10**6, "shard_bytes": 15_000}
    settings |= {"validation_share": 0.2, "sequence_length": 64}
    return preparing.settings("jsonl", world / "corpus.jsonl", world / "vocab", **(settings | more))


def made(world, out, **more):
    """The figures of `prepare`, and the rows of its file."""
    out.mkdir()
    figures = prepare.make(config(world, out, **more), out).figures
    with pa.ipc.open_file(str(out / dropped.FILE)) as file:
        about = json.loads(file.schema.metadata[b"dropped"])
        rows = file.read_all().to_pylist()
    left_out = figures["documents"]["read"] - figures["documents"]["written"]
    assert about == {"format": "dropped/1", "documents": left_out}
    assert figures["dropped"] == len(rows)
    return figures, rows


def test_every_outcome_is_said_with_its_reason(world, tmp_path):
    figures, rows = made(world, tmp_path / "out")
    outcomes = Counter(each["outcome"] for each in rows)
    assert outcomes == {k: v for k, v in figures["documents"].items() if k not in ("read", "written")}
    reasons = Counter(each["reason"] for each in rows if each["outcome"] == "filtered")
    assert reasons == figures["filtered"]
    assert set(reasons) == {"long", "non-letters", "banned", "contaminated", "near duplicate"}
    assert {each["reason"] for each in rows if each["outcome"] != "filtered"} == {""}
    name = str(world / "corpus.jsonl")
    found = {int(each["id"].removeprefix(f"{name} line ")): each["outcome"] for each in rows}
    assert {number: found[number] for number in range(COUNT + 1, COUNT + 4)} == {
        COUNT + 1: "empty",
        COUNT + 2: "short",
        COUNT + 3: "duplicate",
    }
    near = [each["id"] for each in rows if each["reason"] == "near duplicate"]
    assert near in ([f"{name} line 8"], [f"{name} line {len(ROWS)}"])


@pytest.mark.slow
def test_the_rows_do_not_depend_on_the_layout(world, tmp_path, monkeypatch):
    many = {"corpus": CorpusConfig(name="c", reader="jsonl", path=str(world / "ids.jsonl"), options={"id": "name"})}
    lines = [json.dumps({"text": text, "name": f"\ud800 {k % 7}"}) + "\n" for k, text in enumerate(ROWS * 2)]
    (world / "ids.jsonl").write_text("".join(lines))
    expected = made(world, tmp_path / "one", **many)
    assert sum(expected[0]["documents"][outcome] for outcome in ("duplicate", "filtered")) > COUNT
    many["split_bytes"] = 3000
    small = {"runner": RunnerConfig(task_bytes=1), **many}
    assert made(world, tmp_path / "small", **small) == expected
    monkeypatch.setattr(shuffle, "DIRECT", 1)  # merge parts between the phases
    assert made(world, tmp_path / "merged", **small) == expected
    monkeypatch.setattr(dropped, "MOST", 9)
    figures, rows = made(world, tmp_path / "few", **small)
    assert (len(rows), figures) == (9, expected[0] | {"dropped": 9})
    assert all(row in expected[1] for row in rows)
    assert made(world, tmp_path / "few in one", **many | {"split_bytes": 10**6})[1] == rows


# Documents that passed the filters.


@given(st.text(st.characters() | st.sampled_from(" \t\n\r\u00a0\u3000\u2028\x1f")))
def test_words_are_what_white_space_divides(text):
    assume(cleaned := clean(text))
    kept = KeptDocument(b"", cleaned, [cleaned], copies=1, id="one")
    assert kept.words == len(cleaned.split())


@given(
    st.text(st.sampled_from("ab A.!?。！”“'()0 é中…\n") | st.characters()),
    st.sampled_from(["en", "zh", "ja"]),
    st.booleans(),
)
@example(text="It rained . ) It stopped.", language="en", by_lines=False)
def test_sentences_and_what_is_before_them_make_the_text(text, language, by_lines):
    assume(cleaned := clean(text))
    parts = split_sentences(cleaned, language, by_lines=by_lines)
    kept = KeptDocument(b"", cleaned, parts, copies=1, id="one")
    pairs = zip(kept.gaps, parts, strict=True)
    assert "".join((gap or "") + part for gap, part in pairs) == cleaned


def test_no_space_precedes_a_sentence_of_chinese():
    text = "他走了。真的嗎？\n是的！ 好。好。"
    parts = split_sentences(text, "zh")
    kept = KeptDocument(b"", text, parts, copies=1, id="one")
    assert kept.gaps == [None, "", "\n", " ", ""]


# Documents taken from nested token ids.


documents = st.lists(st.lists(st.lists(st.integers(0, 65_535), max_size=4), max_size=4), min_size=1, max_size=8)


@given(documents, st.sampled_from([np.uint16, np.uint32]), st.data())
def test_documents_are_taken_as_arrow_takes_them(given_documents, dtype, data):
    sentences = [each for document in given_documents for each in document]
    whole = nested(
        np.array([number for each in sentences for number in each], dtype),
        np.array([len(each) for each in sentences], np.int64),
        np.array([len(document) for document in given_documents], np.int64),
    )
    assert whole.to_pylist() == given_documents
    low = data.draw(st.integers(0, len(given_documents)))
    part = whole.slice(low)  # offsets that do not begin at 0
    order = data.draw(st.lists(st.integers(0, len(part) - 1))) if len(part) else []
    places = np.array(order, np.int64)
    taken = take(part, places)
    taken.validate(full=True)
    assert taken.equals(part.take(pa.array(places)))
