"""Which tokens go on with a word: what a plain walk over characters, words and offsets says."""

import shlex
import sys
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import ConfigError
from pipeline.text import sentences
from pipeline.tokenization import pretokenize, word_segmentation
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build, read_vocab
from tests.support.examples import examples

TEXT = "中国科学院计算所的小明毕业于北京大学他来到了网易杭研大厦卡拉恤食豈㐀𠀀"
LATIN = ["the", "##s", "a", "##b", "ok", "t", "が", "べ", "##る", "3", "##4"]
VOCAB = list(dict.fromkeys([*SPECIAL, *"[]!,.。，“”#", *TEXT[:-4], *LATIN]))
TOKENIZERS = [WordPiece(build(VOCAB, lowercase=lower)) for lower in (True, False)]
PIECES = [
    *shlex.split("中国 科学院 毕业 北京大学 大学 卡拉OK T恤 食べる thes ab 34"),
    *"，。 \u3000\u200b\ufffd\u0301#豈㐀𠀀！",
]
SENTENCES = st.lists(
    st.sampled_from(PIECES) | st.text(st.sampled_from(TEXT), max_size=4) | st.text(max_size=2), max_size=12
).map(lambda parts: "".join(parts).encode("utf-8", "ignore").decode())


def slow(wordpiece: WordPiece, sentence: str, cut: word_segmentation.Segmenter) -> list[bool]:
    """Token by token, by the library's offsets."""
    encoded = wordpiece.library.encode(sentence, add_special_tokens=False)
    begins = {0, *accumulate(map(len, cut(sentence)))}
    within = ["\u4e00" <= sentence[start] <= "\u9fff" and start not in begins for start, _ in encoded.offsets]
    marks = zip(encoded.tokens, within, strict=True)
    return [place > 0 and (token.startswith("##") or inside) for place, (token, inside) in enumerate(marks)]


def check(wordpiece: WordPiece, texts: list[str], cut: word_segmentation.Segmenter) -> np.ndarray:
    ids, lengths, goes_on = wordpiece.encode_words(texts, cut)
    plain = wordpiece.encode(texts)
    assert ids.tolist() == plain[0].tolist()
    assert lengths.tolist() == plain[1].tolist()
    assert goes_on.tolist() == [mark for text in texts for mark in slow(wordpiece, text, cut)]
    return goes_on


@pytest.mark.parametrize("wordpiece", TOKENIZERS)
@settings(max_examples=examples(150), deadline=None)
@given(texts=st.lists(SENTENCES, max_size=6))
def test_tokens_go_on_where_the_words_of_jieba_do(wordpiece: WordPiece, texts: list[str]) -> None:
    check(wordpiece, texts, word_segmentation.segmenter("jieba"))


@settings(max_examples=examples(150), deadline=None)
@given(texts=st.lists(SENTENCES, max_size=6), cuts=st.sets(st.integers(0, 30)))
def test_any_segmenter_will_do(texts: list[str], cuts: set[int]) -> None:
    def cut(sentence: str) -> list[str]:
        places = sorted({0, len(sentence), *(place % (len(sentence) + 1) for place in cuts)})
        return [sentence[low:high] for low, high in pairwise(places)]

    check(TOKENIZERS[0], texts, cut)


def test_words_of_characters_letters_and_both() -> None:
    wordpiece, text = TOKENIZERS[0], "小明毕业于中国科学院，thes T恤。"
    ids, _, goes_on = wordpiece.encode_words([text, "院"], word_segmentation.segmenter("jieba"))
    shown = [("+" if on else " ") + wordpiece.vocab[i] for i, on in zip(ids, goes_on, strict=True)]
    assert "".join(shown) == " 小+明 毕+业 于 中+国+科+学+院 ， the+##s t+恤 。 院"


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["".join(PIECES[start:] * 2) for start in range(len(PIECES))] + ["", "", "中国"]
    cut = word_segmentation.segmenter("jieba")
    whole = TOKENIZERS[0].encode_words(texts, cut)
    monkeypatch.setattr(pretokenize, "CHUNK", 50)
    for one, other in zip(whole, TOKENIZERS[0].encode_words(texts, cut), strict=True):
        assert one.tolist() == other.tolist()
    assert whole[2].any()


def test_nothing_gives_nothing() -> None:
    for texts in ([], [""], ["", "\u200b", ""]):
        ids, lengths, goes_on = TOKENIZERS[0].encode_words(texts, word_segmentation.segmenter("jieba"))
        assert ids.tolist() == goes_on.tolist() == []
        assert lengths.tolist() == [0] * len(texts)


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    word_segmentation.segmenter.cache_clear()
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(ConfigError, match="pip install rjieba"):
        word_segmentation.segmenter("jieba")


@pytest.mark.shared_data
def test_real_text_goes_on_where_the_words_of_jieba_do(shared_data: Path) -> None:
    wordpiece = WordPiece(build(read_vocab(shared_data / "vocab/bert-base-chinese-vocab.txt")))
    files = (path for path in (shared_data / "wiki_text/zh_2024").rglob("*") if path.is_file())
    text = min(files).read_bytes()[:300_000].decode("utf-8", "ignore")
    goes_on = check(wordpiece, sentences.split_sentences(text, "zh"), word_segmentation.segmenter("jieba"))
    assert 0.25 < goes_on.mean() < 0.5
