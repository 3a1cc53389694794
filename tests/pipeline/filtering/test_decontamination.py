"""Documents are left out if a set of n-grams, built by a few lines, has one of theirs; no others are."""

import gzip
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import FiltersConfig
from pipeline.filtering import filters
from tests.pipeline.filtering.test_filters import story

WORDS = st.sampled_from(["a", "B", "The", "x2", "é", "Straße", "ночь", "-", "don't", "1,000", "snake_case"])
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), min_size=1, max_size=4)


def grams(text, n):
    words = re.findall(r"[^\W_]+", text.lower())
    return {tuple(words[k : k + n]) for k in range(len(words) - n + 1)}


@given(st.lists(TEXTS, min_size=1, max_size=3), TEXTS, st.integers(2, 4))
def test_what_shares_an_n_gram_with_any_file_is_left_out(files, documents, n):
    known = [set().union(*(grams(text, n) for text in texts)) for texts in files]
    with TemporaryDirectory() as folder:
        for number, texts in enumerate(files):
            Path(folder, f"{number}.jsonl").write_text("".join(json.dumps({"x": [text, 1]}) + "\n" for text in texts))
        if not any(known):
            return
        (taken,) = filters.build(FiltersConfig(decontaminate=[folder], ngram=n))
    expected = [any(grams(text, n) & one for one in known) for text in documents]
    assert [taken.check(text) is not None for text in documents] == expected


# Passages are found in evaluation files of all layouts.


TAGGED = [
    ("dev.conll", "{word}\tO\n"),
    ("eng.testa", "{word} NN I-NP O\n"),
    ("ud.conllu", "{number}\t{word}\t_\tNOUN\t_\t_\t0\troot\t_\t_\n"),
    ("dev.tsv", "{word}\tO\n"),
    ("v4_gold", "bc/cctv/00 0 {number} {word} NN (TOP* -\n"),
]


@pytest.mark.parametrize(("name", "row"), TAGGED, ids=[name for name, _ in TAGGED])
def test_words_are_read_from_columns(tmp_path, name, row):
    passage = story(7).removesuffix(" 7.")
    rows = [row.format(word=word, number=k) for k, word in enumerate(passage.split(), 1)]
    (tmp_path / name).write_text(f"-DOCSTART- -X- O\n\n{''.join(rows[:20])}\n{''.join(rows[20:])}")
    (taken,) = filters.build(FiltersConfig(decontaminate=[str(tmp_path / name)]))
    assert taken.check(f"He read: {passage}")
    assert not taken.check(story(8))
    assert not taken.check(" ".join(map(str, range(1, 40))))


def test_words_are_read_from_lists(tmp_path):
    row = {"tokens": story(7).split(), "tags": ["O"] * 41}
    (tmp_path / "dev.jsonl").write_text(json.dumps(row))
    (taken,) = filters.build(FiltersConfig(decontaminate=[str(tmp_path)]))
    assert taken.check(f"He read: {story(7)}")
    assert not taken.check(story(8))


@pytest.mark.parametrize("indent", [None, 1])
def test_json_is_read_whole_or_by_lines_whatever_its_name(tmp_path, indent):
    rows = [{"text": story(number)} for number in (7, 9)]
    text = json.dumps(rows, indent=1) if indent else "\n".join(map(json.dumps, rows))
    (tmp_path / "dev.json").write_text(text)
    (taken,) = filters.build(FiltersConfig(decontaminate=[str(tmp_path)]))
    assert [taken.check(f"He read: {story(number)}") is not None for number in (7, 8, 9)] == [True, False, True]


@pytest.mark.parametrize("name", ["dev.tsv", "dev.jsonl", "dev.txt.gz"])
def test_files_in_an_old_encoding_are_read_as_the_corpus_is(tmp_path, name):
    passage = "Старый сторож вышел на крыльцо, и снег тихо падал на тёмные ели у дома лесника"
    written = (json.dumps({"text": passage}, ensure_ascii=False) if "jsonl" in name else passage).encode("cp1251")
    (tmp_path / name).write_bytes(gzip.compress(written) if name.endswith(".gz") else written)
    (taken,) = filters.build(FiltersConfig(decontaminate=[str(tmp_path)]), "ru")
    assert taken.check(f"Он читал: {passage}.")
    assert not taken.check(f"Он читал: {passage[:30]}.")
