"""Documents are left out if a set of n-grams, built by a few lines, has one of theirs; no others are."""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import CorpusConfig, FiltersConfig
from pipeline.filtering import filters
from pipeline.readers import ReadLog, open_corpus
from pipeline.text import clean

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
    assert isinstance(taken, filters.Decontamination)
    expected = [any(grams(text, n) & one for one in known) for text in documents]
    assert [taken.check(text) is not None for text in documents] == expected


@pytest.mark.slow
@pytest.mark.shared_data
def test_real_articles_that_share_a_passage_with_real_questions_are_those_of_the_set(shared_data):
    dev = shared_data / "glue/QNLI/dev.tsv"
    known = set().union(*(grams(cell, 5) for line in dev.read_text().split("\n") for cell in line.split("\t")))
    (taken,) = filters.build(FiltersConfig(decontaminate=[str(dev)], ngram=5))
    corpus = CorpusConfig(name="w", reader="wikiextractor", path=str(shared_data / "wiki_text/en_2021"))
    reader = open_corpus(corpus, "")
    texts = {one.id: clean.clean(one.text) for one in reader.read(reader.splits(1 << 20)[0], ReadLog())}
    expected = {name for name, text in texts.items() if not known.isdisjoint(grams(text, 5))}
    assert 50 < len(expected) < len(texts) / 2
    assert {name for name, text in texts.items() if taken.check(text)} == expected
