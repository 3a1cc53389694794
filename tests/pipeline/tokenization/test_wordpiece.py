"""WordPiece gives what the library gives, whatever the text."""

import json
import random
import shlex
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from pipeline.errors import InputError
from pipeline.preparation.documents import KeptDocument
from pipeline.text import clean, sentences
from pipeline.tokenization import pretokenize
from pipeline.tokenization.coverage import Coverage
from pipeline.tokenization.piece_bytes import piece_bytes
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build, is_cased, read_vocab, special_names
from tests.support.examples import examples

LETTERS = sorted("aebcosStAÉéßıΣσςд中文한のー̈́-'0٣")
WORDS = ["the", "mask", "MASK", "und", "##und", "##s", "word", "straße", "İ", "ﬁ", "é", "x" * 100]
VOCAB = list(dict.fromkeys([*SPECIAL, *"[]!,.’“”。", *LETTERS, *("##" + letter for letter in LETTERS), *WORDS]))

CORNERS = [
    *SPECIAL,
    *" \n\t\u3000\u00a0\u2028\u200b\u200d\ufeff\x00\x0b\x85\ufffd\u0378\ue000\u0301\u0338\u302e\u093e\u037e",
    *"≠éİﬁⅧ。，’—中\u4dc0㐀豈𠀀ーが한ก😀$`^!|！ำ\u1161\u11a8",
    *shlex.split("e\u0301 ΑΣ か\u3099 \u1112\u1161 👩\u200d🚀 the The ##s straße =\u0338 <\u0338 =\u0301\u0338 เม"),
    "  ",
    *("x" * number for number in (99, 101, 250)),
    "é" * 101,
]
TEXT = st.lists(st.sampled_from(CORNERS) | st.text(max_size=4), max_size=12).map("".join)
OPTIONS = {
    "uncased": {"lowercase": True},
    "cased": {"lowercase": False},
    "lower, accents kept": {"lowercase": True, "strip_accents": False},
    "cased, accents stripped": {"lowercase": False, "strip_accents": True},
    "Chinese words whole": {"lowercase": True, "split_chinese": False},
    "new, cased": {"lowercase": False, "new": True},
    "new, uncased": {"lowercase": True, "new": True},
}
TOKENIZERS = {name: WordPiece(build(VOCAB, **options)) for name, options in OPTIONS.items()}
FEW = [*SPECIAL, "a", "##b", "ab", "Ab", "y" * 100, "y" * 101, "9", "k", "ıx", "##", "unk"]
TOKENIZERS |= {f"few, {lowercase}": WordPiece(build(FEW, lowercase=lowercase)) for lowercase in (True, False)}


def truth(source, texts):
    """What the library itself says."""
    library = Tokenizer.from_str(source)
    library.encode_special_tokens = True
    return [library.encode(text, add_special_tokens=False).ids for text in texts]


def cut(ids, lengths):
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


@pytest.mark.parametrize("options", TOKENIZERS)
@settings(max_examples=examples(300), deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=8))
@example(["the[MASK]the [SEP] [PAD]", "x" * 100, "x" * 101])
@example(["ab Ab AB a b", "y" * 100, "y" * 101, "9 99 [UNK] unk", "\u212a k K", "İx ıx ß"])
def test_any_text_gives_the_ids_of_the_library(options, texts):
    source = TOKENIZERS[options].library.to_str()
    assert cut(*TOKENIZERS[options].encode(texts)) == truth(source, texts)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(TEXT, max_size=4), st.lists(TEXT, max_size=4))
def test_sentences_do_not_see_each_other(left, right):
    wordpiece = TOKENIZERS["uncased"]
    ids, lengths = wordpiece.encode(left + right)
    parts = [wordpiece.encode(left), wordpiece.encode(right)]
    assert ids.tolist() == [number for part in parts for number in part[0].tolist()]
    assert lengths.tolist() == [length for part in parts for length in part[1].tolist()]


def test_neither_chunks_nor_a_small_cache_change_anything(monkeypatch):
    texts = [" ".join(CORNERS[start:]) for start in range(len(CORNERS))] * 2
    wordpiece = WordPiece(build(VOCAB))
    whole = cut(*wordpiece.encode(texts))
    monkeypatch.setattr(pretokenize, "CHUNK", 100)
    monkeypatch.setattr(pretokenize, "CACHED", 40)
    assert cut(*wordpiece.encode(texts)) == whole
    assert len(wordpiece._cache) < 120


@pytest.mark.parametrize("limit", ["CACHED", "CACHED_BYTES"])
def test_a_piece_stays_in_the_cache_only_while_it_comes_again(limit, monkeypatch):
    monkeypatch.setattr(pretokenize, limit, 4)
    asked = []

    def ask(texts):
        asked.extend(texts)
        return np.array([ord(text[0]) for text in texts], np.uint16), np.ones(len(texts), np.int64)

    cache = pretokenize.Cache(ask)
    for pieces in ("abcd", "d", "efgh", "d", "ijkl", "d", "dk"):
        ids, _ = cache.encode([piece.encode() for piece in pieces], np.arange(len(pieces)))
        assert ids.tolist() == [ord(piece) for piece in pieces]
    assert "".join(asked) == "abcdefghijklk", "d is kept, and k is not"


def test_a_word_is_remembered_once_whatever_spaces_follow_it():
    wordpiece = WordPiece(build(VOCAB))
    text = " the the  these, the   "
    assert cut(*wordpiece.encode([text, "the", ""])) == truth(build(VOCAB), [text, "the", ""])
    assert len(wordpiece._cache) <= 4, "the, these, a comma, and nothing before the first word"
    wordpiece = WordPiece(build(VOCAB))
    wordpiece.encode(["the these, the"])
    assert len(wordpiece._cache) == 3, "a space is no piece"


@pytest.fixture
def restless():
    """Let threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("cached", [40, 2**19])
def test_threads_that_share_a_vocabulary_get_the_ids_of_one(monkeypatch, cached):
    monkeypatch.setattr(pretokenize, "CACHED", cached)
    draw = random.Random(1)
    words = [word for word in CORNERS if word.strip()] + WORDS + [f"the{k}" for k in range(300)]
    texts = [[" ".join(draw.choices(words, k=40)) for _ in range(8)] for _ in range(40)]
    expected = [cut(*WordPiece(build(VOCAB)).encode(text)) for text in texts]
    for _ in range(5):
        wordpiece = WordPiece(build(VOCAB))
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(wordpiece.encode, texts * 4))
        assert [cut(*one) for one in found] == expected * 4


def test_halves_of_surrogate_pairs_are_passed_over():
    ids, lengths = TOKENIZERS["uncased"].encode(["the\ud800se", "\udfff", "the"])
    whole, _ = TOKENIZERS["uncased"].encode(["these", "the"])
    assert (ids.tolist(), lengths[1:].tolist()) == (whole.tolist(), [0, 1])


@pytest.mark.parametrize(("size", "dtype"), [(2**16, np.uint16), (2**16 + 1, np.uint32)])
def test_large_vocabularies_have_wide_ids(size, dtype):
    vocab = [*SPECIAL, *(f"w{number}" for number in range(5, size))]
    ids, _ = WordPiece(build(vocab)).encode([f"w{size - 1}"])
    assert (ids.dtype, ids.tolist()) == (dtype, [size - 1])


def test_other_tokenizers_are_left_to_the_library():
    library = Tokenizer(models.WordLevel({**{t: i for i, t in enumerate(SPECIAL)}, "a-b": 5}))
    library.model.unk_token = "[UNK]"
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wordpiece = WordPiece(library.to_str())
    assert "normalizer" in str(wordpiece.uncached)
    ids, lengths = wordpiece.encode(["a-b c", "[MASK]", ""])
    assert (lengths.tolist(), ids.tolist()) == ([2, 3, 0], [5, *[wordpiece.unk] * 4])


GEMMA = ("<pad>", "<unk>", "<bos>", "<eos>", "<mask>")
ROBERTA = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")


@pytest.mark.parametrize("names", [SPECIAL, GEMMA, ROBERTA])
def test_special_tokens_have_the_names_of_one_family(names):
    assert special_names(names) == names
    # Gemma has entries for HTML, and <s> is struck-out text.
    assert special_names({*names, "<i>", "</i>", "<s>", "</s>"}) == names


def unigram(names):
    """SentencePiece's kind, which has its special tokens among the pieces."""
    pieces = [(name, 0.0) for name in names]
    pieces += [(letter, -9.0) for letter in "▁abcmskpdun[]<>/MASK"]
    library = Tokenizer(models.Unigram(pieces, unk_id=1))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    return library


def merged(names):
    """BPE that takes words that are entries whole, whatever its merges are."""
    ids = {name: number for number, name in enumerate([*names, *"abcmskpdun[]<>/MASKP_"])}
    library = Tokenizer(models.BPE(ids, [], unk_token=names[1], ignore_merges=True))
    library.normalizer = normalizers.Replace(" ", "_")
    library.pre_tokenizer = pre_tokenizers.Split("_", "isolated")
    return library


def test_an_added_token_that_contains_a_special_one_is_found_in_text():
    library = unigram([*ROBERTA, "<s>NOTUSED"])
    library.add_special_tokens(list(ROBERTA))
    library.add_tokens(["<s>NOTUSED"])
    wordpiece = WordPiece(library.to_str())
    ids = wordpiece.encode(["a <s>NOTUSED b <s>"])[0].tolist()
    assert (ids.count(wordpiece.vocab.index("<s>NOTUSED")), ids.count(wordpiece.cls)) == (1, 0)


@pytest.mark.parametrize("make", [unigram, merged])
@pytest.mark.parametrize("names", [SPECIAL, GEMMA, ROBERTA, ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")])
def test_special_tokens_of_other_tokenizers_in_the_text_are_text(make, names):
    library = make(names)
    library.add_special_tokens(list(names))
    wordpiece = WordPiece(library.to_str())
    assert wordpiece.special_ids == list(range(5))
    special = {wordpiece.pad, wordpiece.cls, wordpiece.sep, wordpiece.mask}
    for name in names:
        ids, _ = wordpiece.encode([f"a {name} b", name, f"a{name}{name}b"])
        assert not special & set(ids.tolist()), name
    others = ["a b", "a [MASK] b" if names != SPECIAL else "a <mask> b", "a\tb", "<x> [x]"]
    ids, lengths = wordpiece.encode(others)
    assert cut(ids, lengths) == truth(library.to_str(), others)


BEGUN = [([], False, True), ([("▁", "a")], False, True), ([(".", "▁")], False, True), ([], True, False)]


@pytest.mark.parametrize(("merges", "prefix", "spaced"), [*BEGUN, ([("▁", "a"), ("▁", ".")], True, False)])
def test_a_part_of_a_text_has_its_space_unless_every_text_begins_with_one(merges, prefix, spaced):
    names = [*SPECIAL, *".a▁", *("".join(pair) for pair in merges)]
    library = Tokenizer(models.BPE({name: n for n, name in enumerate(names)}, merges))
    parts = [normalizers.Prepend("▁")] if prefix else []
    library.normalizer = normalizers.Sequence([*parts, normalizers.Replace(" ", "▁")])
    library.add_special_tokens(list(SPECIAL))
    wordpiece = WordPiece(library.to_str())
    assert wordpiece.within_text([".", "a"], [False, True]) == [".", " a" if spaced else "a"]


def trained(model):
    """A tokenizer of another kind; with `prefix` it reads a space before every text."""
    byte, prefix = model.startswith("byte"), model.endswith("prefix")
    kind, trainer = models.BPE(unk_token=None if byte else "[UNK]"), trainers.BpeTrainer
    if model.startswith("unigram"):
        kind, trainer = models.Unigram(), trainers.UnigramTrainer
    library = Tokenizer(kind)
    if byte:
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    elif "whole" in model:  # as Gemma's, whose words may begin within others
        library.normalizer = normalizers.Replace(" ", "▁")
    else:
        scheme = "always" if prefix else "never"
        library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    more = {"unk_token": "[UNK]"} if model.startswith("unigram") else {}
    library.train_from_iterator(PARAGRAPHS * 9, trainer(vocab_size=300, special_tokens=list(SPECIAL), **more))
    return library


@pytest.mark.parametrize("unknown", [None, "[UNK]"])
@pytest.mark.parametrize("byte", [True, False])
def test_letters_that_have_no_token_are_unknown(byte, unknown):
    """BPE without an unknown token leaves them out: of bytes where its alphabet is that of its text alone."""
    library = Tokenizer(models.BPE(unk_token=unknown))
    library.pre_tokenizer = pre_tokenizers.ByteLevel() if byte else pre_tokenizers.Metaspace()
    library.train_from_iterator(["The cat é sat."] * 9, trainers.BpeTrainer(special_tokens=list(SPECIAL)))
    wordpiece = WordPiece(library.to_str())
    wordpiece.encode(["The жук sat é on я."])
    assert wordpiece.coverage == Coverage(19, len("жукonя"))
    assert wordpiece.coverage.warning


@pytest.mark.parametrize("model", ["byte", "unigram", None])
def test_line_ends_that_have_tokens_are_said(model):
    """Training reads a line end as a space, so that its model knows no such token."""
    wordpiece = WordPiece(trained(model).to_str() if model else build([*SPECIAL, "a", "b"]))
    ends = wordpiece.encode(["a\nb\n", "a b"])[0].tolist() != wordpiece.encode(["a b ", "a b"])[0].tolist()
    assert ends == (model is not None)
    wordpiece.coverage.unknown = 0
    assert wordpiece.coverage.line_ends == 2 * ends
    assert ("line ends" in wordpiece.coverage.line) == ends


PARAGRAPHS = "他走了。真的嗎？是的！你好。他走了。|東京は日本の首都です。「はい。」と言った。|A b. The b c? Yes!"
PARAGRAPHS = [*PARAGRAPHS.split("|"), "[MASK]是。<mask>好。", "．．．。。", "e\u0301。é。"]
PARAGRAPHS.append("他说 Hello. 是。The b。 b c")
PARTS = st.lists(st.sampled_from(["", " ", "\n"]) | st.sampled_from(PARAGRAPHS), max_size=9)


@pytest.mark.parametrize(
    "model", ["byte", "byte prefix", "bpe prefix", "bpe", "bpe whole", "unigram prefix", "unigram"]
)
def test_sentences_have_the_ids_of_their_whole_paragraph(model):
    wordpiece = WordPiece(trained(model).to_str())

    @settings(max_examples=examples(60), deadline=None)
    @given(PARTS, st.sampled_from(["zh", "ja", "en"]))
    def check(pieces, language):
        text = clean.clean("".join(pieces))
        parts = sentences.split_sentences(text, language)
        kept = KeptDocument(b"", text, parts, 1, "")
        coverage = Coverage()
        ids, lengths = wordpiece.encode_within(parts, kept.gaps, coverage)
        lines = [
            line if not place or not wordpiece.spaced else f" {line}"
            for place, line in enumerate(filter(None, text.split("\n")))
        ]
        lines = wordpiece.library_texts(lines)
        encoded = wordpiece.library.encode_batch(lines, add_special_tokens=False)
        assert ids.tolist() == [number for one in encoded for number in one.ids]
        assert (len(lengths), lengths.sum()) == (len(parts), len(ids))
        lost = [
            end - start
            for one in encoded
            for number, (start, end) in zip(one.ids, one.offsets, strict=True)
            if number == wordpiece.unk
        ]
        assert coverage == Coverage(sum(map(len, parts)), sum(lost))

    check()


@pytest.mark.parametrize("model", ["byte", "byte prefix", "bpe prefix", "bpe", "unigram"])
def test_a_long_paragraph_has_the_ids_of_a_whole_one(model, monkeypatch):
    """It is encoded in parts that begin at spaces."""
    monkeypatch.setattr("pipeline.tokenization.wordpiece.LONGEST_PARAGRAPH", 12)
    library, parts = trained(model).to_str(), ["The b c?", "Yes!", "A b."] * 4
    ids, lengths = WordPiece(library).encode_within(parts, [None, *[" "] * 11], Coverage())
    assert cut(ids, lengths.sum(keepdims=True)) == truth(library, [" ".join(parts)])


def test_a_token_is_of_the_sentence_that_it_begins_in():
    wordpiece = WordPiece(trained("unigram prefix").to_str())
    assert wordpiece.library_texts(["是[MASK]。"]) == ["是[ MASK ]。"], "the name of a special token is text"
    parts = ["他走了。", "真的嗎？", "The b c?", "Yes!"]
    ids, lengths = wordpiece.encode_within(parts, [None, "", " ", "\n"], Coverage())
    words = ["".join(wordpiece.vocab[number] for number in part) for part in cut(ids, lengths)]
    assert words == ["▁他走了。", "真的嗎？", "▁The▁b▁c?", "▁Yes!"]


UNKNOWN = [(False, "ab ab", 0), (False, "ab qqq, ab q", 4), (False, "x" * 101 + " ab", 101), (True, "a=\u0338b", 3)]
UNKNOWN += [(True, "a" + "b" * 150, 0), (True, "q" + "b" * 150, 100)]
UNKNOWN += [(True, "e\u0301e\u0301", 0), (False, "e\u0301e\u0301", 4)]


@pytest.mark.parametrize(("new", "text", "unknown"), UNKNOWN)
def test_unknown_characters_are_counted(new, text, unknown):
    entries = [*SPECIAL, "a", "##b", "b", "ab", ",", "é", "##é"]
    wordpiece = WordPiece(build(entries, lowercase=False, new=new))
    coverage = Coverage()
    ids, _ = wordpiece.encode([text, "", text], coverage)
    assert coverage.unknown == 2 * unknown
    assert coverage.characters >= 2 * unknown
    wordpiece.encode_words([text], list, coverage)
    assert coverage.unknown == 3 * unknown
    assert wordpiece.coverage == Coverage(), "of texts without a count of their own"
    assert ids.tolist() == [number for one in truth(wordpiece.library.to_str(), [text]) * 2 for number in one]


CUT = {"ก" * 99 + "เมือง": ["ก" * 99, "เมือง"], "ก" * 99 + "มำ": ["ก" * 99, "มำ"], "x" * 100: ["x" * 100]}
CUT |= {"ក" * 99 + "\u17d2ក": ["ក" * 98, "ក\u17d2ក"], "क" * 99 + "किक": ["क" * 99, "किक"]}


@pytest.mark.parametrize(("word", "parts"), [*CUT.items(), ("\u0301" * 150, ["\u0301" * 100, "\u0301" * 50])])
def test_long_words_of_new_vocabularies_are_cut_between_syllables(word, parts):
    library = Tokenizer.from_str(build(list(SPECIAL), lowercase=False, new=True))
    assert [part for part, _ in library.pre_tokenizer.pre_tokenize_str(word)] == parts


WESTERN, MARKED = ["a", "##a", "b", "##b", "ab", "##bé", "é"], ["ก", "##ก", "เม", "##เ", "ក", "##\u17d2", "क", "##ि"]


@settings(max_examples=examples(50), deadline=None)
@given(
    st.sampled_from([WESTERN, MARKED]),
    st.lists(st.tuples(st.sampled_from("abéқ中, "), st.sampled_from("กเมำក\u17d2किab "), st.integers(1, 130))),
)
def test_words_are_cut_without_looking_behind_where_they_always_were(words, runs):
    source = build([*SPECIAL, *words], lowercase=False, new=True)
    before = json.loads(source)
    pattern = {"Regex": pretokenize.OLD_LONG_WORDS}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    before["pre_tokenizer"]["pretokenizers"][1] = split
    text = "".join((western if words is WESTERN else marked) * count for western, marked, count in runs)
    now, old = WordPiece(source), WordPiece(json.dumps(before))
    assert "(?<" not in source
    assert now.uncached is old.uncached is None
    assert now.encode([text])[0].tolist() == old.encode([text])[0].tolist()
    assert ("Regex" in source) == (words is MARKED), "only tokenizers with Oniguruma read any expression"


def test_a_pair_of_characters_that_makes_a_letter_has_one_of_these():
    """What `encode` puts together before it cuts."""
    standing = {chr(code) for code in range(128) if not chr(code).isalnum()}
    standing |= {c for c in map(chr, range(sys.maxunicode)) if unicodedata.category(c)[0] in "PZ"}
    standing |= set(map(chr, range(0x4E00, 0xA000)))
    pairs = (unicodedata.decomposition(char) for char in map(chr, range(sys.maxunicode)))
    made = [tuple(chr(int(code, 16)) for code in one.split()) for one in pairs if one[:1] != "<"]
    assert {one[1] for one in made if len(one) == 2 and one[0] in standing} == {"\u0338"}
    assert not {one[1] for one in made if len(one) == 2 and one[1] in standing}


def test_files_and_folders_give_the_same_tokenizer(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    alone = WordPiece.load(tmp_path)
    source = build(VOCAB)
    (tmp_path / "tokenizer.json").write_text(source, encoding="utf-8")
    for place in (tmp_path, tmp_path / "tokenizer.json", str(tmp_path / "vocab.txt")):
        wordpiece = WordPiece.load(place)
        assert (wordpiece.vocab, wordpiece.sha256) == (VOCAB, alone.sha256)
        assert wordpiece.special_ids == [0, 1, 2, 3, 4]


def test_case_is_guessed_from_the_words():
    assert not is_cased([*SPECIAL, "the", "##s"])
    assert is_cased([*SPECIAL, "The"])
    assert is_cased([*SPECIAL, *"aAbBcC", "##s"])
    assert not is_cased([*SPECIAL, "我", "们"])
    # The vocabulary of bert-base-chinese has two such entries, though its text is in lower case.
    junk = ["<S>", "<T>", "[unused1]", "[MYTOKEN]", "##<EOS>", "-LRB-"]
    assert not is_cased([*SPECIAL, *junk, "the", "##s", "我"])
    assert not is_cased([*SPECIAL, "NASA", *(f"word{'x' * n}" for n in range(500))])
    assert not json.loads(build([*SPECIAL, "The"]))["normalizer"]["lowercase"]


BROKEN = [(b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n", r"\[MASK\]", None), (b"[PAD]\na\nb\na\n", "'a' .*line 2", 4)]
BROKEN = [("vocab.txt", *row) for row in [*BROKEN, (b"", "empty", None), (b"[PAD]\n\xff\n", "byte 6", None)]]
BROKEN += [("tokenizer.json", b"{}", "tokenizer.json", None), ("else.txt", b"", "neither", None)]


@pytest.mark.parametrize(("name", "content", "message", "line"), BROKEN)
def test_broken_vocabularies_say_what_is_wrong(tmp_path, name, content, message, line):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        WordPiece.load(tmp_path)
    path = tmp_path if name == "else.txt" else tmp_path / name
    assert (caught.value.path, caught.value.line) == (str(path), line)


@pytest.mark.shared_data
@pytest.mark.parametrize("model", ["uncased", "cased", "chinese"])
def test_real_text_gives_the_ids_of_the_library(shared_data, model):
    vocab = read_vocab(shared_data / "vocab" / f"bert-base-{model}-vocab.txt")
    wordpiece = WordPiece(build(vocab))
    assert is_cased(vocab) == (model == "cased")  # as Google's validate_case_matches_checkpoint
    folders = ("wiki_text/en_2021", "wiki_text/zh_2024", "books", "wikitext2")
    files = [min(p for p in (shared_data / name).rglob("*") if p.is_file()) for name in folders]
    for file in files:
        text = clean.clean(file.read_bytes()[:400_000].decode("utf-8", "replace"))
        parts = sentences.split_sentences(text, "zh" if "zh" in str(file) else "en")
        encoded = wordpiece.library.encode_batch(parts, add_special_tokens=False)
        ids, lengths = wordpiece.encode(parts)
        assert lengths.tolist() == [len(one.ids) for one in encoded]
        assert ids.tolist() == [number for one in encoded for number in one.ids]


@pytest.mark.parametrize("model", [None, "byte", "byte, prefix", "unigram, prefix", "unigram", "whole"])
def test_entries_stand_for_the_bytes_of_the_text_without_its_spaces(model):
    wordpiece = WordPiece(trained(model).to_str()) if model else TOKENIZERS["cased"]
    text = "the mask und 中文 straße é." if model is None else " ".join(PARAGRAPHS)
    ids = wordpiece.encode([text])[0]
    assert wordpiece.unk not in ids
    assert piece_bytes(wordpiece)[ids].sum() == len("".join(text.split()).encode())
    assert not piece_bytes(wordpiece)[wordpiece.special_ids].any()
