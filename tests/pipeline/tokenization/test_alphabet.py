"""The letters of a learnt vocabulary: common ones by coverage, then those any text may have."""

from tokenizers import Tokenizer

from pipeline.tokenization import alphabet
from pipeline.tokenization.wordpiece import SPECIAL, build

TOKENIZER = Tokenizer.from_str(build(list(SPECIAL)))


def test_counts_are_of_letters_as_the_tokenizer_leaves_them() -> None:
    letters = alphabet.count_letters(["Aa é", "É\u0301x 中"], TOKENIZER)
    assert letters == {"a": 2, "e": 2, "x": 1, "中": 1}


def test_what_would_be_stripped_is_counted() -> None:
    assert alphabet.accented_share(["Đi chợ", "한국 i\u0307"]) == 2 / 9
    assert alphabet.accented_share(["हि"]) == 0  # a vowel sign with a place of its own stays
    assert alphabet.accented_share([" "]) == 0


def test_rare_letters_give_way_to_common_ones_but_never_ascii() -> None:
    letters = {"a": 10**6, "b": 10**6, "ж": 9, "é": 8, "?": 1}
    kept, inside = alphabet.choose(letters, TOKENIZER, 30522)
    assert {"a", "b", "?"} <= set(kept)
    assert not {"ж", "é"} & set(kept)
    assert {"a", "b"} <= set(inside)
    assert "?" not in inside


def test_printable_ascii_and_punctuation_are_there_though_the_sample_has_none() -> None:
    kept, inside = alphabet.choose({"a": 10**6}, TOKENIZER, 8000)
    lower = {char.lower() for char in map(chr, range(0x21, 0x7F))}
    assert lower | set("‘’“”–—…‐£€°«»§") <= set(kept)
    assert set("abcdefghijklmnopqrstuvwxyz0123456789") <= set(inside)


def test_letters_met_ten_times_are_there_beyond_the_coverage() -> None:
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


def test_a_script_of_thousands_of_letters_loses_none_to_the_rare_ones() -> None:
    script = {chr(0x4E00 + number): 1000 - number // 10 for number in range(6000)}
    kept, _ = alphabet.choose(script, TOKENIZER, 8000)
    common = [letter for letter in kept if letter >= "\u4e00"]
    assert len(common) >= 4000, "half of all entries, as without the rare ones"
    assert set(map(chr, range(0x4E00, 0x4E00 + 4000))) <= set(common)


def test_a_small_vocabulary_keeps_most_entries_for_words() -> None:
    crowd = {chr(0x4E00 + number): 1 for number in range(500)}
    kept, inside = alphabet.choose(crowd, TOKENIZER, 100)
    assert len(kept) + len(inside) == 100 // 2 + 100 // 8
