"""Text -> token ids, by WordPiece (Devlin et al. 2019; Schuster and Nakajima 2012).

The library `tokenizers` is the truth, and does all the work once: text is cut where it would be cut
anyway (`pretokenize`), the library tokenizes each distinct piece, and from then on its ids are
looked up. Words repeat, so this is 15 times faster, and the same.

Special tokens are never read out of the text: an article that says "[MASK]" gives the tokens
"[", "mask", "]", as in Google's tokenization.py, and not the id that the masked LM is about.

Shapes: S sentences, T tokens, N pieces of text, D distinct ones.
"""

import hashlib
import json
import os
import re
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from pipeline.common.errors import InputError
from pipeline.tokenization import pretokenize
from pipeline.tokenization.pretokenize import Bools, Ids, Lengths
from pipeline.tokenization.word_segmentation import Segmenter, word_starts

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

CASED_SHARE = 0.01  # of words with capitals, above which a vocabulary is a cased one

_BATCH = 256  # texts: what the library makes of them is large, and slow when it leaves the cache
_MARKS = "|;!,."  # what may stand between words that are asked together
_SPECIAL = re.compile(rf"\[({'|'.join(token[1:-1] for token in SPECIAL)})\]")


def read_vocab(path: Path) -> list[str]:
    """The entries of a vocab.txt; the n-th line is that of id n, from 0.

    Raises:
        InputError: not UTF-8, empty, or an entry that stands there twice.
    """
    try:
        lines = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise InputError(f"{path}: empty, not a vocabulary")
    first: dict[str, int] = {}
    for number, entry in enumerate(lines, 1):
        if first.setdefault(entry, number) != number:
            raise InputError(
                f"{path}, line {number}: {entry!r} stands on line {first[entry]} already; "
                "remove one, and mind that ids are line numbers"
            )
    return lines


def build(
    vocab: list[str],
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    split_chinese: bool = True,
) -> str:
    """The BERT tokenizer of a vocabulary, as a tokenizer.json.

    Without `lowercase`, the entries tell whether the vocabulary is a cased one: see `is_cased`.
    """
    ids = {entry: number for number, entry in enumerate(vocab)}
    if lowercase is None:
        lowercase = not is_cased(vocab)
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=split_chinese,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    return str(tokenizer.to_str(pretty=True))


def normalization(path: Path) -> tuple[bool | None, bool | None, bool]:
    """What a tokenizer_config.json beside a vocab.txt says, as `build` takes it.

    Raises:
        InputError: it is there, and broken.
    """
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return (
            said.get("do_lower_case"),
            said.get("strip_accents"),
            said.get("tokenize_chinese_chars", True),
        )
    except FileNotFoundError:
        return None, None, True
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: not a tokenizer's configuration ({error})") from error


def is_cased(vocab: list[str]) -> bool:
    """Return whether a notable share of the words in a script with capitals have some.

    Only entries of letters are asked: lower-case vocabularies have some others, such as `[CLS]` and
    `<S>`. A few words in capitals, perhaps added by hand, do not make a vocabulary a cased one; of
    Google's cased one they are 30 %.
    """
    words = (entry.removeprefix("##") for entry in vocab)
    bicameral = [word for word in words if word.isalpha() and word.lower() != word.upper()]
    capitals = sum(word != word.lower() for word in bicameral)
    return capitals > CASED_SHARE * len(bicameral)


def check_special(vocab: Collection[str], place: str) -> None:
    """Check that the five special tokens are there.

    Raises:
        InputError: some are not.
    """
    if missing := [token for token in SPECIAL if token not in vocab]:
        raise InputError(
            f"{place}: no entry {' and no '.join(missing)}; BERT needs {' '.join(SPECIAL)}"
        )


def read(path: Path) -> str:
    """Return a vocab.txt, a tokenizer.json, or a folder of one or both as a tokenizer.json's text.

    Padding and truncation are switched off: published models come with those of their own use.

    Raises:
        InputError: it is not there, it is broken, or a special token is missing.
    """
    if not path.exists():
        raise InputError(f"{path}: no vocabulary there; run python -m pipeline.vocab to make one")
    if path.is_dir():
        found = [name for name in ("tokenizer.json", "vocab.txt") if (path / name).is_file()]
        if not found:
            raise InputError(f"{path}: neither tokenizer.json nor vocab.txt in this folder")
        path /= found[0]
    if path.suffix != ".json":
        vocab = read_vocab(path)
        check_special(vocab, str(path))
        return build(vocab, *normalization(path.with_name("tokenizer_config.json")))
    try:
        text = path.read_bytes().decode()  # line ends as they are: the checksum is of this
        tokenizer = Tokenizer.from_str(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{path}: not a tokenizer.json ({error})") from error
    check_special(tokenizer.get_vocab(with_added_tokens=True), str(path))
    return text if tokenizer.padding is tokenizer.truncation is None else _without_padding(text)


def _without_padding(source: str) -> str:
    """Return a tokenizer.json with padding and truncation switched off."""
    spec = json.loads(source) | {"padding": None, "truncation": None}
    return json.dumps(spec, ensure_ascii=False, indent=2)


def entries_of(library: Tokenizer) -> list[str]:
    """All entries by id, those that were added to the model's own among them; "" in a gap."""
    ids: dict[str, int] = library.get_vocab(with_added_tokens=True)
    entries = [""] * (max(ids.values()) + 1)
    for entry, number in ids.items():
        entries[number] = entry
    return entries


def uncached_reason(spec: dict[str, Any]) -> str | None:
    """Why this tokenizer.json forbids to cut text into pieces; None where it may be cut."""
    wanted = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}
    for part, kind in (wanted | {"model": "WordPiece"}).items():
        found = (spec[part] or {}).get("type", "none")
        if found != kind:
            return f"its {part} is {found}, not {kind}"
    words = [token["content"] for token in spec["added_tokens"] if not token["special"]]
    return f"it has added words ({words[0]!r} first)" if words else None


def ascii_tokenizer(tokenizer: Tokenizer, lowercase: bool) -> Tokenizer:
    """The same for pieces in printable ASCII, at twice the speed.

    They have no accents, controls or Chinese characters to look for, and no punctuation to cut at.
    """
    found = Tokenizer(tokenizer.model)
    if lowercase:
        found.normalizer = normalizers.Lowercase()
    found.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return found


def whole_words(spec: dict[str, Any]) -> dict[str, int]:
    """Return the ids of words that are tokens as a whole: longest match first finds them so.

    They are of ASCII letters and digits alone, which the tokenizer leaves as they are once they are
    lowercased.
    """
    lowercase, most = spec["normalizer"]["lowercase"], spec["model"]["max_input_chars_per_word"]
    return {
        entry: number
        for entry, number in spec["model"]["vocab"].items()
        if entry.isascii() and entry.isalnum() and len(entry) <= most
        and not (lowercase and entry != entry.lower())
    }  # fmt: skip


class WordPiece:
    """Sentences to ids, as `tokenizers` has them, at several times its speed."""

    def __init__(self, source: str):
        """`source` is the text of a tokenizer.json with the five special tokens."""
        # Workers are as many as cores: the library's threads would only be in their way.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self.sha256 = hashlib.sha256(source.encode()).hexdigest()
        self.library = Tokenizer.from_str(source)
        self.library.encode_special_tokens = True  # as text, that is
        self.library.no_padding()
        self.library.no_truncation()
        self.vocab = entries_of(self.library)
        self.size = len(self.vocab)
        self.special_ids = [self.vocab.index(token) for token in SPECIAL]
        self.pad, self.unk, self.cls, self.sep, self.mask = self.special_ids
        self.dtype = np.dtype(np.uint16 if self.size <= 2**16 else np.uint32)
        # As the library writes it: old files of published models do not name the model's type.
        spec = json.loads(self.library.to_str())
        self._whole = uncached_reason(spec)
        if self._whole:
            warnings.warn(f"tokenizing at the library's own speed: {self._whole}", stacklevel=3)
        else:
            self._kinds = pretokenize.CharClasses(self.library)
            self._lowercase: bool = spec["normalizer"]["lowercase"]
            self._plain = ascii_tokenizer(self.library, self._lowercase)
            self._cache = pretokenize.Cache(self._ask_new)
            self._whole_words = whole_words(spec)
            marks = (self.library.encode(mark, add_special_tokens=False).ids for mark in _MARKS)
            # (a mark, its id) where one is an entry of the vocabulary
            self._mark = next(
                ((mark, ids[0]) for mark, ids in zip(_MARKS, marks, strict=True)
                 if len(ids) == 1 and ids[0] != self.unk),
                None,
            )  # fmt: skip

    @classmethod
    def load(cls, folder: Path | str) -> "WordPiece":
        """From a vocab.txt, a tokenizer.json, or a folder that holds one or both.

        Raises:
            InputError: it is not there, it is broken, or a special token is missing.
        """
        return cls(read(Path(folder)))

    def encode(self, sentences: list[str]) -> tuple[Ids, Lengths]:
        """The ids of all sentences, end to end `(T,)`, and the tokens of each `(S,)`.

        No special tokens are added. Ids are uint16 up to 65,536 entries, else uint32. Halves of
        surrogate pairs, which have no place in text, are passed over.
        """
        sentences, data, bounds = pretokenize.utf8_buffer(sentences)
        if self._whole:
            return self._ask([_SPECIAL.sub(r"[ \1 ]", sentence) for sentence in sentences])
        parts = [self._chunk(data, bounds[part]) for part in pretokenize.chunks(bounds)]
        ids = np.concatenate([np.zeros(0, self.dtype), *(part.ids for part in parts)])
        return ids, np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)])

    @property
    def cuts_chinese(self) -> bool:
        """Whether each Chinese character is a token of its own, as `encode_words` needs it."""
        return not self._whole and self._kinds.stands_alone("中")

    def encode_words(self, sentences: list[str], cut: Segmenter) -> tuple[Ids, Lengths, Bools]:
        """As `encode`, and whether each token goes on with the word of the one before `(T,)`.

        Those do that begin with "##", and Chinese characters within a word of `cut`. The first
        token of a sentence never does.
        """
        assert self.cuts_chinese
        sentences, data, bounds = pretokenize.utf8_buffer(sentences)
        starts = word_starts(sentences, data, cut)
        parts = [(np.zeros(0, self.dtype), np.zeros(0, np.int64), np.zeros(0, np.bool_))]
        for part in map(bounds.__getitem__, pretokenize.chunks(bounds)):
            chunk = self._chunk(data, part)
            goes_on = self.continues[chunk.ids]
            places = chunk.starts + part[0]
            inner = pretokenize.are_chinese(data, places) & ~starts[places]
            goes_on[chunk.firsts[inner]] = True
            first = np.cumsum(chunk.lengths) - chunk.lengths
            goes_on[first[chunk.lengths > 0]] = False
            parts.append((chunk.ids, chunk.lengths, goes_on))
        ids, lengths, marks = map(np.concatenate, zip(*parts, strict=True))
        return ids, lengths, marks

    @cached_property
    def continues(self) -> Bools:
        """Whether each entry of the vocabulary goes on with the word before it `(V,)`."""
        return np.array([entry.startswith("##") for entry in self.vocab], np.bool_)

    def _ask(self, texts: list[str]) -> tuple[Ids, Lengths]:
        """What the library says: ids end to end, and how many of each text."""
        ids: list[list[int]] = []
        for start in range(0, len(texts), _BATCH):
            part = texts[start : start + _BATCH]
            encoded = self.library.encode_batch_fast(part, add_special_tokens=False)
            ids += (one.ids for one in encoded)
        flat = np.fromiter(chain.from_iterable(ids), self.dtype)
        return flat, np.fromiter(map(len, ids), np.int64, len(ids))

    def _ask_new(self, words: list[str]) -> tuple[Ids, Lengths]:
        """As `_ask`: words that the vocabulary has whole are looked up, the others asked."""
        # Only words in ASCII are looked up: others may be normalized in other ways.
        keys = [word if word.isascii() else "" for word in words]
        if self._lowercase:
            keys = list(map(str.lower, keys))
        get = self._whole_words.get
        found = np.fromiter(map(get, keys, repeat(-1)), np.int64, len(words))
        asked = np.flatnonzero(found < 0)
        counts = np.ones(len(words), np.int64)
        ids, counts[asked] = self._ask_words([words[index] for index in asked])
        known = np.repeat(found >= 0, counts)
        all_ids = np.empty(len(known), self.dtype)
        all_ids[known] = found[found >= 0]
        all_ids[~known] = ids
        return all_ids, counts

    def _ask_words(self, words: list[str]) -> tuple[Ids, Lengths]:
        """As `_ask`: many words in one text, a mark after each, which is several times as fast.

        The words stand between spaces, where the library cuts anyway. Should marks and words not
        be equal in number, a word held a mark, and all are asked one by one.
        """
        if self._mark is None:
            return self._ask(words)
        parts = [(np.zeros(0, self.dtype), np.zeros(0, np.int64))]
        mark, mark_id = self._mark
        for start in range(0, len(words), _BATCH):
            part = words[start : start + _BATCH]
            text = f" {mark} ".join([*part, ""])
            library = self._plain if text.isascii() and text.isprintable() else self.library
            (encoded,) = library.encode_batch_fast([text], add_special_tokens=False)
            ids = np.array(encoded.ids, self.dtype)
            at = np.flatnonzero(ids == mark_id)
            if len(at) == len(part):
                parts.append((ids[ids != mark_id], np.diff(at, prepend=-1) - 1))
            else:
                parts.append(self._ask(part))
        found = [part[0] for part in parts]
        return np.concatenate(found), np.concatenate([part[1] for part in parts])

    def _chunk(self, data: npt.NDArray[np.uint8], bounds: Lengths) -> "_Chunk":
        """The tokens of the sentences that `bounds` cut out of UTF-8 `data`."""
        data = data[bounds[0] : bounds[-1]]
        bounds = bounds - bounds[0]
        starts = pretokenize.starts(data, bounds, self._kinds)
        cuts = np.append(starts, len(data))  # (N+1,)
        words, bounds_of_words = pretokenize.without_spaces(data, cuts)
        buffers = [None, pa.py_buffer(bounds_of_words.astype(np.int32)), pa.py_buffer(words)]
        column = pa.BinaryArray.from_buffers(pa.binary(), len(starts), buffers)
        column = column.dictionary_encode()
        distinct, indices = column.dictionary.to_pylist(), column.indices.to_numpy()  # (D,), (N,)
        ids, counts = self._cache.encode(distinct, indices)  # (T,), (N,)
        before = np.concatenate([[0], np.cumsum(counts)])
        return _Chunk(ids, np.diff(before[np.searchsorted(cuts, bounds)]), starts, before[:-1])


@dataclass(frozen=True)
class _Chunk:
    """Some sentences, tokenized."""

    ids: Ids  # (T,)
    lengths: Lengths  # (S,) tokens of each sentence
    starts: Lengths  # (N,) where the pieces start, in bytes,
    firsts: Lengths  # (N,) and the first token of each
