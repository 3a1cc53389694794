"""Documents that passed the filters."""

from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline.beam.documents import KeptDocument
from pipeline.text.clean import clean


@given(st.text(st.characters() | st.sampled_from(" \t\n\r\u00a0\u3000\u2028\x1f")))
def test_words_are_what_white_space_divides(text: str) -> None:
    assume(cleaned := clean(text))
    kept = KeptDocument(b"", cleaned, [cleaned], copies=1, id="one", number=1, split=0)
    assert kept.words == len(cleaned.split())
