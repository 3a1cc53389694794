"""Chinese text, its words marked by jieba: from a file to masks that hide whole words."""

import re
import shlex
import sys
from itertools import accumulate, chain, pairwise

import numpy as np
import pytest
import rjieba
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline import inspect, prepare, shards
from pipeline.errors import ConfigError
from pipeline.stages import stage
from pipeline.tokenization import alphabet, pretokenize, word_segmentation
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build
from tests.support import preparing
from tests.support.examples import examples
from tests.support.refusals import refused

NOUNS = "我们 北京大学 中国科学院 的 了 在 研究 历史 经济 发展 城市 河流 人 学生 世界 音乐 火车站 图书馆 和 非常 美丽"
WORDS = NOUNS.split()


def documents(count=60):
    """Sentences of random words; no two are the same."""
    draw = np.random.default_rng(0)
    return [["".join(draw.choice(WORDS, 9)) + "。" for _ in range(draw.integers(3, 9))] for _ in range(count)]


TEXTS = documents()


def configuration(folder, **changes):
    usual = {"out": str(folder / "prepare"), "validation_share": 0.0, "sequence_length": 48, "minimum_characters": 1}
    if "corpus" not in changes:
        usual |= {"language": "zh", "options": {"document": "paragraph"}}
    return preparing.settings("text", f"{folder}/*.txt", folder, **{"words": "jieba", **usual, **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = preparing.vocabulary(tmp_path_factory.mktemp("chinese"), [*sorted(set("".join(WORDS))), "。"])
    for part in range(3):
        texts = TEXTS[part * 20 : part * 20 + 20]
        (place / f"{part}.txt").write_text("\n\n".join(map("".join, texts)))
    stage.run("prepare", configuration(place), prepare.make)
    return place


def test_marks_change_nothing_else(folder, tmp_path):
    config = configuration(folder, out=str(tmp_path / "prepare"), words=None)
    stage.run("prepare", config, prepare.make)
    for plain, marked in zip(
        shards.open_folder(tmp_path / "prepare", "train"), shards.open_folder(folder / "prepare", "train"), strict=True
    ):
        assert (plain.info.words, marked.info.words) == (None, "jieba")
        assert plain.values.tolist() == marked.ids(0, len(marked.values)).tolist()
        assert plain.values.tolist() != marked.values.tolist()
        assert plain.offsets.tolist() == marked.offsets.tolist()


def test_inspect_shows_words(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["inspect", str(folder / "prepare"), "--samples", "9"])
    with pytest.raises(SystemExit, match="0"):
        inspect.main()
    shown = capsys.readouterr().out
    assert "pairs nsp, words by jieba, at most 48 tokens" in shown
    words = set(chain.from_iterable(rjieba.cut(text) for texts in TEXTS for text in texts))
    joined = re.findall("[\u4e00-\u9fff]{2,}", shown)
    assert len(joined) > 50
    assert all(any(part in word for word in words) for part in joined)


def test_what_cannot_be_marked_is_refused_before_work_starts(tmp_path):
    (tmp_path / "0.txt").write_text("。".join(TEXTS[0]))
    source = build([*SPECIAL, *"我们"], lowercase=True, split_chinese=False)
    (tmp_path / "tokenizer.json").write_text(source)
    with pytest.raises(ConfigError, match="split_chinese=true"):
        prepare.make(configuration(tmp_path), tmp_path / "prepare")
    with refused(ConfigError, "jieba", key="words"):
        configuration(tmp_path, words="spaces")
    assert not (tmp_path / "prepare").exists()


# The letters of a learnt vocabulary: common ones by coverage, then those any text may have.


TOKENIZER = Tokenizer.from_str(build(list(SPECIAL)))


def test_counts_are_of_letters_as_the_tokenizer_leaves_them():
    letters = alphabet.count_letters(["Aa é", "É\u0301x 中"], TOKENIZER)
    assert letters == {"a": 2, "e": 2, "x": 1, "中": 1}


def test_what_would_be_stripped_is_counted():
    assert alphabet.accented_share(["Đi chợ", "한국 i\u0307"]) == 2 / 9
    assert alphabet.accented_share(["हि"]) == 0  # a vowel sign with a place of its own stays
    assert alphabet.accented_share([" "]) == 0


def test_rare_letters_give_way_to_common_ones_but_never_ascii():
    letters = {"a": 10**6, "b": 10**6, "ж": 9, "é": 8, "?": 1}
    kept, inside = alphabet.choose(letters, TOKENIZER, 30522)
    assert {"a", "b", "?"} <= set(kept)
    assert not {"ж", "é"} & set(kept)
    assert {"a", "b"} <= set(inside)
    assert "?" not in inside


def test_printable_ascii_and_punctuation_are_there_though_the_sample_has_none():
    kept, inside = alphabet.choose({"a": 10**6}, TOKENIZER, 8000)
    lower = {char.lower() for char in map(chr, range(0x21, 0x7F))}
    assert lower | set("‘’“”–—…‐£€°«»§") <= set(kept)
    assert set("abcdefghijklmnopqrstuvwxyz0123456789") <= set(inside)


def test_letters_met_ten_times_are_there_beyond_the_coverage():
    often, seldom = "абвгд", "жзик"
    letters = {"a": 10**8} | dict.fromkeys(often, 10) | dict.fromkeys(seldom, 9)
    kept, _ = alphabet.choose(letters, TOKENIZER, 8000)
    assert set(often) <= set(kept)
    assert not set(seldom) & set(kept)
    crowd = {"a": 10**12} | {chr(0x4E00 + number): 10 + number for number in range(3000)}
    kept, _ = alphabet.choose(crowd, TOKENIZER, 30522)
    found = [ord(letter) - 0x4E00 for letter in kept if letter >= "\u4e00"]
    assert 800 < len(found) < 1000, "bounded"
    assert found == list(range(3000 - len(found), 3000)), "the most frequent"


def test_a_script_of_thousands_of_letters_loses_none_to_the_rare_ones():
    script = {chr(0x4E00 + number): 1000 - number // 10 for number in range(6000)}
    kept, _ = alphabet.choose(script, TOKENIZER, 8000)
    common = [letter for letter in kept if letter >= "\u4e00"]
    assert len(common) >= 4000, "half of all entries, as without the rare ones"
    assert set(map(chr, range(0x4E00, 0x4E00 + 4000))) <= set(common)


def test_a_small_vocabulary_keeps_most_entries_for_words():
    crowd = {chr(0x4E00 + number): 1 for number in range(500)}
    kept, inside = alphabet.choose(crowd, TOKENIZER, 100)
    assert len(kept) + len(inside) == 100 // 2 + 100 // 8


# Which tokens go on with a word: what a plain walk over characters, words and offsets says.


TEXT = "中国科学院计算所的小明毕业于北京大学他来到了网易杭研大厦卡拉恤食豈㐀𠀀"
LATIN = ["the", "##s", "a", "##b", "ok", "t", "が", "べ", "##る", "3", "##4"]
VOCAB = list(dict.fromkeys([*SPECIAL, *"[]!,.。，“”#", *TEXT[:-4], *LATIN]))
TOKENIZERS = [WordPiece(build(VOCAB, lowercase=lower)) for lower in (True, False)]
PIECES = shlex.split("中国 科学院 毕业 北京大学 大学 卡拉OK T恤 食べる thes ab 34")
PIECES += "，。 \u3000\u200b\ufffd\u0301#豈㐀𠀀！"
SENTENCES = st.lists(
    st.sampled_from(PIECES) | st.text(st.sampled_from(TEXT), max_size=4) | st.text(max_size=2), max_size=12
).map(lambda parts: "".join(parts).encode("utf-8", "ignore").decode())


def slow(wordpiece, sentence, cut):
    """Token by token, by the library's offsets."""
    encoded = wordpiece.library.encode(sentence, add_special_tokens=False)
    begins = {0, *accumulate(map(len, cut(sentence)))}
    within = ["\u4e00" <= sentence[start] <= "\u9fff" and start not in begins for start, _ in encoded.offsets]
    marks = zip(encoded.tokens, within, strict=True)
    return [place > 0 and (token.startswith("##") or inside) for place, (token, inside) in enumerate(marks)]


def check(wordpiece, texts, cut):
    ids, lengths, goes_on = wordpiece.encode_words(texts, cut)
    plain = wordpiece.encode(texts)
    assert (ids.tolist(), lengths.tolist()) == (plain[0].tolist(), plain[1].tolist())
    assert goes_on.tolist() == [mark for text in texts for mark in slow(wordpiece, text, cut)]
    return goes_on


@pytest.mark.parametrize("wordpiece", TOKENIZERS)
@settings(max_examples=examples(150), deadline=None)
@given(texts=st.lists(SENTENCES, max_size=6))
def test_tokens_go_on_where_the_words_of_jieba_do(wordpiece, texts):
    check(wordpiece, texts, word_segmentation.segmenter("jieba"))


@settings(max_examples=examples(150), deadline=None)
@given(texts=st.lists(SENTENCES, max_size=6), cuts=st.sets(st.integers(0, 30)))
def test_any_segmenter_will_do(texts, cuts):
    def cut(sentence):
        places = sorted({0, len(sentence), *(place % (len(sentence) + 1) for place in cuts)})
        return [sentence[low:high] for low, high in pairwise(places)]

    check(TOKENIZERS[0], texts, cut)


def test_chunks_change_nothing(monkeypatch):
    texts = ["".join(PIECES[start:] * 2) for start in range(len(PIECES))] + ["", "", "中国"]
    cut = word_segmentation.segmenter("jieba")
    whole = TOKENIZERS[0].encode_words(texts, cut)
    monkeypatch.setattr(pretokenize, "CHUNK", 50)
    for one, other in zip(whole, TOKENIZERS[0].encode_words(texts, cut), strict=True):
        assert one.tolist() == other.tolist()
    assert whole[2].any()


def test_a_missing_library_says_what_to_install(monkeypatch):
    word_segmentation.segmenter.cache_clear()
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(ConfigError, match="pip install rjieba"):
        word_segmentation.segmenter("jieba")
