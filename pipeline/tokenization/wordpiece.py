"""Token ids by WordPiece (Devlin et al. 2019; Schuster and Nakajima 2012).

The library `tokenizers` is the reference: text is cut where the library would cut anyway
(`pretokenize`), the library tokenizes each distinct piece once, and later occurrences are looked up
in a cache. Words repeat: this is 15 times faster, with identical results.

Special tokens are never recognised in text: an article containing "[MASK]" gives the tokens
"[", "mask", "]", as in Google's tokenization.py, not the id used by the masked LM.

Shapes: S sentences, T tokens, N pieces of text, D distinct ones.
"""

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Collection, Iterable
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Encoding, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import FixedLength
from tokenizers.processors import TemplateProcessing

from pipeline.common.counter_rng import Bools
from pipeline.common.ranges import bounds_of
from pipeline.errors import InputError, is_panic, readable, refuse_panics
from pipeline.storage import placeholders, strict_json
from pipeline.tokenization import normalization, pretokenize, tokenizer_folder
from pipeline.tokenization.coverage import Coverage, Dropped
from pipeline.tokenization.pretokenize import (
    LONG_WORDS,
    LONGEST_WORD,
    Bytes,
    Ids,
    Lengths,
    ascii_tokenizer,
    has_syllables,
    members,
    uncached_reason,
)
from pipeline.tokenization.word_segmentation import Segmenter, word_starts

Texts = list[str]
Encoded = tuple[Ids, Lengths]  # the concatenated ids of texts, and the token count of each

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# Names that tokenizers of other kinds have for these, those of one family together. A vocabulary
# uses the first family that it has all of: Gemma's also has <s> and </s>, as HTML.
_ENDS = (("<bos>", "<eos>"), ("<s>", "</s>"), ("<cls>", "<sep>"))
OTHER_NAMES = tuple(("<pad>", "<unk>", *ends, "<mask>") for ends in _ENDS)

UNUSED_IDS = 2**16  # that a vocabulary may have, in addition to one for each entry

CASED_SHARE = 0.01  # a vocabulary with a larger share of capitalized words is cased

# Characters of a text that the library encodes at once; it needs some 200 bytes for each.
LONGEST_PARAGRAPH = 2**16

_BATCH = 256  # texts: the library's results are large, and slow once they exceed the CPU cache
_MARKS = "|;!,."  # possible separators of words tokenized together


def read_vocab(path: Path) -> Texts:
    """Return the entries of a vocab.txt; line n (from 0) is id n.

    Raises:
        InputError: the file is not UTF-8, is empty, or has a duplicate entry.
    """
    with readable(path):
        lines = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise InputError("the vocabulary is empty", path=path)
    first: dict[str, int] = {}
    for number, entry in enumerate(lines, 1):
        if first.setdefault(entry, number) != number:
            raise InputError(
                f"{entry!r} is a duplicate of line {first[entry]}; replace one of them (ids are line numbers)",
                path=path,
                line=number,
            )
    return lines


def build(
    vocab: Texts,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    split_chinese: bool | None = True,
    *,
    new: bool | None = False,
) -> str:
    """Return the BERT tokenizer of a vocabulary as a tokenizer.json.

    With `lowercase=None`, the case is inferred from the entries: see `is_cased`. With
    `split_chinese=None` Chinese characters are split. A `new` vocabulary reads text in NFC, so that
    a letter is the same however it is encoded, and words of any length.
    """
    ids = {entry: number for number, entry in enumerate(vocab)}
    if lowercase is None:
        lowercase = not is_cased(vocab)
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=split_chinese is not False,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if new:
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), tokenizer.normalizer])
        # Not every library has regular expressions; before there are entries, all letters are expected.
        by_length = vocab != list(SPECIAL) and not has_syllables(vocab)
        cut = FixedLength(LONGEST_WORD) if by_length else pre_tokenizers.Split(Regex(LONG_WORDS), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([tokenizer.pre_tokenizer, cut])
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    return str(tokenizer.to_str(pretty=True))


def is_cased(vocab: Texts) -> bool:
    """Return whether more than `CASED_SHARE` of the words in bicameral scripts have capitals.

    Only entries of letters count: lower-case vocabularies have others, such as `[CLS]` and `<S>`. A
    few capitalized words, perhaps added by hand, do not make a vocabulary cased; in Google's cased
    one they are 30 %.
    """
    words = (entry.removeprefix("##") for entry in vocab)
    bicameral = [word for word in words if word.isalpha() and word.lower() != word.upper()]
    capitals = sum(word != word.lower() for word in bicameral)
    return capitals > CASED_SHARE * len(bicameral)


def check_special(vocab: Collection[str], path: Path) -> None:
    """Check that the vocabulary has the five special tokens; raise InputError otherwise."""
    if missing := [token for token in SPECIAL if token not in vocab]:
        raise InputError(f"{' '.join(missing)} missing; add all of {' '.join(SPECIAL)}", path=path)


def special_names(vocab: Collection[str]) -> tuple[str, ...]:
    """Return the names that a vocabulary has for `SPECIAL`, in this order."""
    known = (names for names in (SPECIAL, *OTHER_NAMES) if all(name in vocab for name in names))
    return next(known, SPECIAL)


def is_wordpiece(library: Tokenizer) -> bool:
    """Return whether a tokenizer cuts words into pieces that "##" marks."""
    return isinstance(library.model, models.WordPiece)


def read(path: Path, options: normalization.Options | None = None) -> str:
    """Return a vocab.txt, a tokenizer.json, or a folder with one or both as tokenizer.json text.

    It has the tokens that other files of the folder add. `options` are for a vocab.txt; None: those
    of the folder. Padding and truncation are disabled: published models carry settings of their
    own.

    Raises:
        InputError: the file is missing, broken or a stand-in, lacks a special token, or is not what cuts text.
    """
    if not path.exists():
        raise InputError("vocabulary not found; run python -m pipeline.vocab, or name its folder", path=path)
    if path.is_dir():
        files = [name for name in ("tokenizer.json", "vocab.txt") if (path / name).is_file()]
        if not files:
            why = "has neither tokenizer.json nor vocab.txt; name the folder of a model, or of python -m pipeline.vocab"
            raise InputError(why, path=path)
        path /= files[0]
    placeholders.refuse(path)
    if path.suffix != ".json":
        vocab = read_vocab(path)
        tokenizer_folder.check_class(path.parent, SPECIAL, wordpiece=True, library=False)
        check_special(vocab, path)
        if options is None:
            options = normalization.read_options(path.with_name(tokenizer_folder.CONFIG))
        return _with_added(build(vocab, **options), path.parent)
    with readable(path):
        text = path.read_bytes().decode()  # keeps line ends, as the checksum covers them
    try:
        spec = strict_json.parse(text)  # the library takes for JSON what is none
        tokenizer = Tokenizer.from_str(text)
        tokenizer.encode("\U00013000")  # without an unknown token, the library fails at such a letter
    except BaseException as error:  # the library raises nothing narrower
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        raise InputError(f"not a valid tokenizer.json ({error}); rebuild the vocabulary", path=path) from error
    entries = tokenizer.get_vocab(with_added_tokens=True)
    if (last := max(entries.values(), default=0)) > 2 * len(entries) + UNUSED_IDS:
        raise InputError(f"{len(entries):,} entries have ids up to {last:,}; rebuild the vocabulary", path=path)
    if (names := special_names(entries)) == SPECIAL:
        check_special(entries, path)
    is_bert = tokenizer_folder.check_class(path.parent, names, is_wordpiece(tokenizer), library=True)
    if path.with_name(tokenizer_folder.CONFIG).exists():
        text = normalization.as_stated(text, spec, names, path.parent, is_bert)
    text = _with_added(text, path.parent)
    if tokenizer.padding is tokenizer.truncation is None:
        return text
    return json.dumps(json.loads(text) | {"padding": None, "truncation": None}, ensure_ascii=False, indent=2)


def _with_added(source: str, folder: Path) -> str:
    """Return a tokenizer.json with the tokens that other files of its folder add.

    Raises:
        InputError: such a file is broken, or an id is taken or not the next one.
    """
    library = Tokenizer.from_str(source)
    known = {token.content for token in library.get_added_tokens_decoder().values()}
    tokens = tokenizer_folder.added_tokens(folder)
    new = {number: token for number, token in tokens.items() if token.content not in known}
    for number, token in new.items():
        library.add_tokens([token])
        if (given := library.token_to_id(token.content)) != number:
            raise InputError(
                f"the added token {token.content!r} should have id {number}, but has {given} after the vocabulary; "
                "correct the files of the tokenizer",
                path=folder,
            )
    return str(library.to_str(pretty=True)) if new else source


def entries_of(library: Tokenizer) -> Texts:
    """Return all entries by id, including added tokens; "" for unused ids."""
    ids: dict[str, int] = library.get_vocab(with_added_tokens=True)
    entries = [""] * (max(ids.values()) + 1)
    for entry, number in ids.items():
        entries[number] = entry
    return entries


class PairFrame(NamedTuple):
    """What tells the texts of a pair apart; by default as next sentences are learnt."""

    separators: int = 1  # [SEP] between them, two as RoBERTa
    segments: bool = True  # the second text is of another segment, in models that have segments


class WordPiece:
    """Tokenizer of sentences, identical to `tokenizers` and several times as fast.

    Tokenizers of other kinds, as byte-level BPE, are those of the library, at its speed.
    """

    def __init__(self, source: str):
        """Build from `source`, the text of a tokenizer.json with the five special tokens."""
        # One worker per core: the library's threads would only compete with them.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self.sha256 = hashlib.sha256(source.encode()).hexdigest()
        self.library = Tokenizer.from_str(source)
        self.library.encode_special_tokens = True  # treat them as plain text
        self.library.no_padding()
        self.library.no_truncation()
        self.vocab = entries_of(self.library)
        self.size = len(self.vocab)
        self.special_ids = [self.vocab.index(name) for name in special_names(self.vocab)]
        self.pad, self.unk, self.cls, self.sep, self.mask = self.special_ids
        self.dtype = np.dtype(np.uint16 if self.size <= 2**16 else np.uint32)
        # Serialized by the library: old files of published models lack the model's type.
        spec = json.loads(self.library.to_str())
        self.uncached = uncached_reason(spec)  # why the library encodes whole sentences, if it does
        self.is_wordpiece = is_wordpiece(self.library)
        self.coverage = Coverage()  # of all texts encoded without one of their own
        self._dropped = Dropped.of(self.library, spec)
        self._in_text = None  # special tokens that the model itself would find in text
        if not isinstance(model := self.library.model, models.BPE) or model.ignore_merges:
            self._in_text = _special_names(self.library, [self.vocab[number] for number in self.special_ids])
        if not self.uncached:
            self._kinds = pretokenize.CharClasses(self.library)
            *composed, bert = members(spec["normalizer"])
            self._composes = bool(composed)
            self._plain = ascii_tokenizer(self.library, bert["lowercase"])
            self._cache = pretokenize.Cache(self._ask_words)
            marks = ((mark, self.library.encode(mark, add_special_tokens=False).ids) for mark in _MARKS)
            # (mark, id) of the first mark in the vocabulary, else None
            self._mark = next(((mark, ids[0]) for mark, ids in marks if len(ids) == 1 and ids[0] != self.unk), None)

    @classmethod
    def load(cls, folder: Path | str) -> "WordPiece":
        """Load a vocab.txt, a tokenizer.json, or a folder with one or both.

        Raises:
            InputError: the file is missing or broken, or lacks a special token.
        """
        return cls(read(Path(folder)))

    def encode(self, sentences: Texts, coverage: Coverage | None = None) -> Encoded:
        """Return the concatenated ids of all sentences `(T,)`, and the token counts `(S,)`.

        Adds no special tokens. Ids are uint16 up to 65,536 entries, else uint32. Lone surrogates
        are skipped. Known and unknown characters are counted in `coverage`.
        """
        coverage = self.coverage if coverage is None else coverage
        sentences, data, bounds = self._buffer(sentences, coverage)
        if self.uncached:
            texts = self.library_texts(sentences)
            ids, counts = self._ask(texts)
            coverage.unknown += self._unknown_in(texts, ids, counts)
            return ids, counts
        # Of a chunk, the places of its pieces need most memory: only what comes before them is kept.
        return self._joined([self._chunk(data, part, coverage)[:2] for part in pretokenize.chunks(bounds)])

    def _joined(self, parts: list[Encoded]) -> Encoded:
        """Concatenate the ids and the counts of parts."""
        none = np.zeros(0, self.dtype), np.zeros(0, np.int64)
        ids, counts = map(np.concatenate, zip(none, *parts, strict=True))
        return ids, counts

    def encode_within(self, parts: Texts, gaps: list[str | None], coverage: Coverage) -> Encoded:
        """Encode parts of texts as `encode` does whole paragraphs, and return the ids of each part.

        `gaps` are what precedes each part in its text: nothing, a space, a line end, or None at the
        beginning. Only the pieces of a BERT tokenizer do not depend on what is around them.
        """
        if not self.uncached:
            return self.encode(parts, coverage)
        parts, _, _ = self._buffer(parts, coverage)
        paragraphs: list[Texts] = []
        size = 0
        for part, gap in zip(self.library_texts(parts), gaps, strict=True):
            if gap in (None, "\n") or size > (LONGEST_PARAGRAPH if gap else 2 * LONGEST_PARAGRAPH):
                paragraphs.append([f" {part}" if gap and self.spaced else part])
                size = 0
            else:
                paragraphs[-1].append(f"{gap}{part}")
            size += len(part)
        texts = ["".join(paragraph) for paragraph in paragraphs]
        ids_of = []
        for start in range(0, len(texts), _BATCH):
            batch = slice(start, start + _BATCH)
            encoded = self.library.encode_batch(texts[batch], add_special_tokens=False)
            for one, paragraph in zip(encoded, paragraphs[batch], strict=True):
                coverage.unknown += self.unknown_of(one)
                # A token that begins in a part, or in the gap before it, is of that part.
                begins = np.fromiter((first for first, _ in one.offsets), np.int64, len(one))
                ends = np.cumsum([len(part) for part in paragraph])[:-1]
                at = np.searchsorted(np.maximum.accumulate(begins), ends)
                ids_of.append((np.array(one.ids, self.dtype), np.diff(at, prepend=0, append=len(one))))
        return self._joined(ids_of)

    def _buffer(self, sentences: Texts, coverage: Coverage) -> tuple[Texts, Bytes, Lengths]:
        """Return `utf8_buffer` of the sentences, which a cut may not divide within a letter."""
        self.note(sentences, coverage)
        if not self.uncached and self._composes:
            # The one mark that makes a letter of what is cut out alone: = gives \u2260.
            sentences = [unicodedata.normalize("NFC", one) if "\u0338" in one else one for one in sentences]
        return pretokenize.utf8_buffer(sentences)

    def note(self, texts: Texts, coverage: Coverage) -> None:
        """Count characters, those that the tokenizer leaves out, and line ends with tokens in `coverage`."""
        coverage.characters += sum(map(len, texts))
        coverage.unknown += self._dropped.count(texts) if self._dropped else 0
        coverage.line_ends += sum(text.count("\n") for text in texts) if self._has_line_ends else 0

    def unknown_of(self, encoded: Encoding) -> int:
        """Return how many characters the unknown tokens of a text stand for."""
        ids = encoded.ids
        if self.unk not in ids:
            return 0
        places = zip(ids, encoded.offsets, strict=True)  # of a letter of several bytes, each the same
        return sum(end - start for start, end in {place for number, place in places if number == self.unk})

    def _unknown_in(self, texts: Texts, ids: Ids, counts: Lengths) -> int:
        """Return how many characters of texts are in unknown tokens among their `ids`."""
        places = np.flatnonzero(ids == self.unk)
        rows = np.unique(np.searchsorted(np.cumsum(counts), places, side="right"))
        lost = [texts[row] for row in rows.tolist()]
        return sum(map(self.unknown_of, self.library.encode_batch(lost, add_special_tokens=False)))

    @cached_property
    def _has_line_ends(self) -> bool:
        """Return whether a line end has other tokens than a space, as byte-level BPE's do."""
        return self.library.encode("a\nb").ids != self.library.encode("a b").ids

    @cached_property
    def spaced(self) -> bool:
        """Return whether a part of a text lacks the space before it, as byte-level BPE's do.

        Tokenizers that begin every text with a space have the same ids for it.
        """
        first, second, both = (self.library.encode(text, add_special_tokens=False).ids for text in (".", "a", ". a"))
        return not self.is_wordpiece and both != first + second

    def within_text(self, parts: Texts, spaces: Iterable[bool]) -> Texts:
        """Return parts of texts as they are there: with the space that precedes them, if any.

        Nothing changes unless the vocabulary is `spaced`.
        """
        if not self.spaced:
            return parts
        return [f" {part}" if space else part for part, space in zip(parts, spaces, strict=True)]

    @property
    def cuts_chinese(self) -> bool:
        """Return whether each Chinese character is a separate token, as `encode_words` requires."""
        return not self.uncached and self._kinds.stands_alone("中")

    def encode_words(
        self, sentences: Texts, cut: Segmenter, coverage: Coverage | None = None
    ) -> tuple[Ids, Lengths, Bools]:
        """Encode as `encode` does, and return whether each token continues a word `(T,)`.

        Tokens that begin with "##", and Chinese characters within a word of `cut`, continue the
        word of the token before. The first token of a sentence never does.
        """
        assert self.cuts_chinese
        coverage = self.coverage if coverage is None else coverage
        sentences, data, bounds = self._buffer(sentences, coverage)
        starts = word_starts(sentences, data, cut)
        parts, marks = list[Encoded](), [np.zeros(0, np.bool_)]
        for part in pretokenize.chunks(bounds):
            chunk = self._chunk(data, part, coverage)
            goes_on = self.continues[chunk.ids]
            places = chunk.starts + part[0]
            inner = pretokenize.are_chinese(data, places) & ~starts[places]
            goes_on[chunk.firsts[inner]] = True
            first = np.cumsum(chunk.lengths) - chunk.lengths
            goes_on[first[chunk.lengths > 0]] = False
            parts.append((chunk.ids, chunk.lengths))
            marks.append(goes_on)
        return *self._joined(parts), np.concatenate(marks)

    @cached_property
    def continues(self) -> Bools:
        """Return whether each entry of the vocabulary continues a word `(V,)`."""
        return np.array([entry.startswith("##") for entry in self.vocab], np.bool_)

    def word_marks(self, sentences: Texts) -> list[Bools]:
        """Return whether each token of a sentence continues the word of the one before `(T,)`, by sentence.

        Entries of WordPiece say so themselves. Others, as byte-level BPE, divide words that their
        pre-tokenizer has divided text into; the library knows which word a token is of.
        """
        if self.is_wordpiece:
            ids, lengths = self.encode(sentences)
            return np.split(self.continues[ids], np.cumsum(lengths)[:-1])
        texts = self.library_texts(pretokenize.utf8_buffer(sentences)[0])
        encoded = self.library.encode_batch(texts, add_special_tokens=False)
        return [np.diff(np.array(one.word_ids, np.int64), prepend=-1) == 0 for one in encoded]

    @cached_property
    def pairs(self) -> PairFrame:
        """Return how the tokenizer frames the texts of a pair."""
        pair = self.library.encode("a", "a")
        return PairFrame(1 + ((self.sep, self.sep) in pairwise(pair.ids)), len({*pair.type_ids}) > 1)

    @property
    def divides_words(self) -> bool:
        """Return whether text is divided into words before these are divided into tokens."""
        return self.is_wordpiece or not self.word_marks(["a b"])[0][1:].all()

    def library_texts(self, sentences: Texts) -> Texts:
        """Return sentences so that the library finds no special token in them."""
        if self._in_text is None:
            return sentences
        return [self._in_text.sub(_spaced, one) for one in sentences]

    @refuse_panics("tokenizer.json")
    def encode_masked(self, parts: Texts) -> Ids:
        """Return the ids of a text with a mask between its parts, in which other special tokens are text.

        What follows a mask is not the beginning of a text.
        """
        parts, _, _ = self._buffer(parts, self.coverage)
        own, known = self.vocab[self.mask], self.library.get_added_tokens_decoder()
        if self.mask not in known:
            self.library.add_special_tokens([own])
        names = [own, *(token.content for token in known.values() if token.special)]
        special = _special_names(self.library, names)
        self.library.encode_special_tokens = False
        try:
            encoded = self.library.encode(
                own.join(special.sub(_spaced, one) for one in parts), add_special_tokens=False
            )
        finally:
            self.library.encode_special_tokens = True
        self.coverage.unknown += self.unknown_of(encoded)
        return np.array(encoded.ids, np.int64)

    @refuse_panics("tokenizer.json")
    def _ask(self, texts: Texts) -> Encoded:
        """Tokenize with the library: return concatenated ids and the count of each text."""
        parts = (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))
        encoded = (self.library.encode_batch_fast(part, add_special_tokens=False) for part in parts)
        ids = [one.ids for one in chain.from_iterable(encoded)]
        flat = np.fromiter(chain.from_iterable(ids), self.dtype)
        return flat, np.fromiter(map(len, ids), np.int64, len(ids))

    @refuse_panics("tokenizer.json")
    def _ask_words(self, words: Texts) -> Encoded:
        """Tokenize as `_ask` does, but join words by marks into one text: several times as fast.

        Words and marks are separated by spaces, where the library cuts anyway. If the numbers of
        marks and words differ, a word contains a mark, and all are tokenized one by one.
        """
        if self._mark is None:
            return self._ask(words)
        parts = []
        mark, mark_id = self._mark
        for start in range(0, len(words), _BATCH):
            part = words[start : start + _BATCH]
            text = f" {mark} ".join([*part, ""])
            plain = text.isascii() and text.isprintable() and max(map(len, part)) <= LONGEST_WORD
            library = self._plain if plain else self.library
            (encoded,) = library.encode_batch_fast([text], add_special_tokens=False)
            ids = np.array(encoded.ids, self.dtype)
            at = np.flatnonzero(ids == mark_id)
            if len(at) == len(part):
                parts.append((ids[ids != mark_id], np.diff(at, prepend=-1) - 1))
            else:
                parts.append(self._ask(part))
        return self._joined(parts)

    def _chunk(self, data: Bytes, bounds: Lengths, coverage: Coverage) -> "_Chunk":
        """Tokenize the sentences delimited by `bounds` in UTF-8 `data`; count unknown characters."""
        data = data[bounds[0] : bounds[-1]]
        bounds = bounds - bounds[0]
        starts = pretokenize.starts(data, bounds, self._kinds)
        cuts = np.append(starts, len(data))  # (N+1,)
        words, bounds_of_words = pretokenize.remove_spaces(data, cuts)
        buffers = [None, pa.py_buffer(bounds_of_words.astype(np.int32)), pa.py_buffer(words)]
        column = pa.BinaryArray.from_buffers(pa.binary(), len(starts), buffers)
        column = column.dictionary_encode()
        distinct, indices = column.dictionary.to_pylist(), column.indices.to_numpy()  # (D,), (N,)
        ids, counts = self._cache.encode(distinct, indices)  # (T,), (N,)
        before = bounds_of(counts)
        lengths = np.diff(before[np.searchsorted(cuts, bounds)])
        coverage.unknown += self._unknown_pieces(distinct, indices, ids, before)
        return _Chunk(ids, lengths, starts, before[:-1])

    def _unknown_pieces(self, distinct: list[bytes], indices: Lengths, ids: Ids, before: Lengths) -> int:
        """Return how many characters of pieces are in unknown tokens among their `ids`."""
        places = np.flatnonzero(ids == self.unk)
        # np.unique of many would take as long as all else.
        pieces = np.flatnonzero(np.bincount(np.searchsorted(before, places, side="right") - 1))
        which, first, times = np.unique(indices[pieces], return_index=True, return_counts=True)
        texts = [distinct[piece].decode() for piece in which.tolist()]
        lost = np.fromiter(map(len, texts), np.int64, len(texts))
        several = np.flatnonzero(np.diff(before)[pieces[first]] > 1)
        encoded = self.library.encode_batch([texts[place] for place in several.tolist()], add_special_tokens=False)
        lost[several] = [self.unknown_of(one) for one in encoded]
        return int(lost @ times)


def _special_names(library: Tokenizer, names: Texts) -> re.Pattern[str]:
    """Return what finds special tokens in text, as its group, and longer tokens whole: CamemBERT has <s>NOTUSED."""
    special = "|".join(map(re.escape, names))
    within = re.compile(f".({special})|({special}).")
    added = library.get_added_tokens_decoder().values()
    longer = [re.escape(one.content) for one in added if not one.special and within.search(one.content)]
    return re.compile("|".join((*longer, f"({special})")))


def _spaced(name: re.Match[str]) -> str:
    """Return the name of a special token with spaces inside its brackets, that of a longer token as it is."""
    return name[0] if name[1] is None else " ".join((name[0][0], name[0][1:-1], name[0][-1]))


class _Chunk(NamedTuple):
    """Tokens of some sentences."""

    ids: Ids  # (T,)
    lengths: Lengths  # (S,) tokens of each sentence
    starts: Lengths  # (N,) byte offset of each piece
    firsts: Lengths  # (N,) first token of each piece
