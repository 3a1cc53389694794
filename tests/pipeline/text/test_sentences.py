"""Sentences: nothing is lost, nothing is empty, nothing reaches over a line's end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.text.clean import clean
from pipeline.text.sentences import LONGEST, split_sentences

TEXTS = st.text(st.sampled_from("ab A.!?。！\"“”'()«0 é中…:;\n") | st.characters())


@pytest.mark.parametrize(
    ("language", "text", "wanted"),
    [
        ("en", "Dr. Smith came. He left!", ["Dr. Smith came.", "He left!"]),
        ("en", "It cost 3.5 million. Why?", ["It cost 3.5 million.", "Why?"]),
        ("en", "A heading\nA paragraph. Its end.", ["A heading", "A paragraph.", "Its end."]),
        ("zh", "他走了。真的嗎？是的！", ["他走了。", "真的嗎？", "是的！"]),
        ("ja", "行った。本当？", ["行った。", "本当？"]),
        ("hi", "वह गया। सच?", ["वह गया।", "सच?"]),
        ("tlh", "One. Two.", ["One.", "Two."]),
        ("en", "", []),
    ],
)
def test_sentences_end_where_a_reader_ends_them(
    language: str, text: str, wanted: list[str]
) -> None:
    assert split_sentences(text, language) == wanted


@given(TEXTS, st.sampled_from(["en", "zh", "de", "ar"]))
def test_no_letter_is_lost(text: str, language: str) -> None:
    text = clean(text)
    found = split_sentences(text, language)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in found)


@given(st.lists(TEXTS, max_size=4))
def test_lines_are_split_one_by_one(texts: list[str]) -> None:
    lines = clean("\n".join(texts)).split("\n")
    assert split_sentences("\n".join(lines), "en") == [
        s for line in lines for s in split_sentences(line, "en")
    ]


def test_an_open_quote_does_not_swallow_the_next_paragraph() -> None:
    assert split_sentences('He said: "Never.\nThen he left. Gone.', "en")[-2:] == [
        "Then he left.",
        "Gone.",
    ]


@pytest.mark.parametrize(
    ("letters", "ends"), [("word " * 2000, "d"), ("好" * 50 + "，", "，"), ("x", "x")]
)
def test_endless_sentences_are_cut_where_it_hurts_least(letters: str, ends: str) -> None:
    text = (letters * 9000)[:9000].strip()
    found = split_sentences(text, "en")
    assert all(len(piece) <= LONGEST and piece.endswith(ends) for piece in found[:-1])
    assert "".join("".join(found).split()) == "".join(text.split())


def test_a_failure_of_the_library_costs_one_line_only() -> None:
    broken = "A\u3000."  # not clean: version 1.0.32 slices inside U+3000 here
    assert split_sentences(f"One. Two.\n{broken}\nThree.", "en") == [
        "One.",
        "Two.",
        broken,
        "Three.",
    ]
