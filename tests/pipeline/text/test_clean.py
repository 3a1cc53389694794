"""Cleaning gives one form to texts that look alike, and changes nothing the tokenizer sees."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer

from pipeline.text.clean import clean

ANYTHING = st.text(st.characters() | st.sampled_from(" \t\n\r\u00a0\u3000\u200b\u2028\ufeffae\u0301"))


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("one\r\ntwo\rthree\n\n\nfour", "one\ntwo\nthree\nfour"),
        ("a\u00a0b\u3000c\td", "a b c d"),
        ("  wide   gaps \n and\t\n \nlines  ", "wide gaps\nand\nlines"),
        ("soft\u00adhyphen zero\u200bwidth \ufeffmark nul\x00", "softhyphen zerowidth mark nul"),
        ("half \ud800 pair", "half pair"),
        ("page one\fpage two\x85next", "page one\npage two\nnext"),
        ("Ã© stays, e\u0301 and e\u200b\u0301 are composed, ﬁ stays", "Ã© stays, é and é are composed, ﬁ stays"),
        (" \n\t ", ""),
    ],
)
def test_texts_that_look_alike_become_equal(raw: str, wanted: str) -> None:
    assert clean(raw) == wanted


@given(ANYTHING)
def test_what_is_left_is_plain_and_stays_so(text: str) -> None:
    cleaned = clean(text)
    assert clean(cleaned) == cleaned
    kinds = {unicodedata.category(char) for char in cleaned if char not in " \n"}
    assert not kinds & {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}
    assert not re.search(r"^ | $|  |\n\n|^\n|\n$", cleaned, re.MULTILINE)


@given(ANYTHING, st.booleans())
def test_the_tokenizer_sees_the_same_words(text: str, lowercase: bool) -> None:
    text = re.sub("[\v\f\x1c-\x1e\x85\ud800-\udfff]", "", text)
    normalizer = BertNormalizer(lowercase=lowercase)

    def words(text: str) -> list[str]:
        return unicodedata.normalize("NFC", str(normalizer.normalize_str(text))).split()

    assert words(clean(text)) == words(text)
