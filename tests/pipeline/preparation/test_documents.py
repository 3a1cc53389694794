"""Documents that passed the filters."""

from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline.preparation.documents import KeptDocument
from pipeline.text.clean import clean
from pipeline.text.sentences import split_sentences


@given(st.text(st.characters() | st.sampled_from(" \t\n\r\u00a0\u3000\u2028\x1f")))
def test_words_are_what_white_space_divides(text: str) -> None:
    assume(cleaned := clean(text))
    kept = KeptDocument(b"", cleaned, [cleaned], copies=1, id="one")
    assert kept.words == len(cleaned.split())


@given(
    st.text(st.sampled_from("ab A.!?。！”“'()0 é中…\n") | st.characters()),
    st.sampled_from(["en", "zh", "ja"]),
    st.booleans(),
)
def test_sentences_and_what_is_before_them_make_the_text(text: str, language: str, by_lines: bool) -> None:
    assume(cleaned := clean(text))
    parts = split_sentences(cleaned, language, by_lines=by_lines)
    kept = KeptDocument(b"", cleaned, parts, copies=1, id="one")
    pairs = zip(kept.gaps, parts, strict=True)
    assert "".join((gap or "") + part for gap, part in pairs) == cleaned


def test_no_space_precedes_a_sentence_of_chinese() -> None:
    text = "他走了。真的嗎？\n是的！ 好。好。"
    parts = split_sentences(text, "zh")
    kept = KeptDocument(b"", text, parts, copies=1, id="one")
    assert kept.gaps == [None, "", "\n", " ", ""]
