"""Sentences -> token ids: the `tokenizers` library, with a cache of words in front of it.

BERT's tokenizer never looks across a space, so a text's ids are those of its space-separated words,
end to end. A chunk's words are found and numbered by Arrow, the library sees each distinct word
once, and the ids are gathered by numpy. What comes out is what the library gives, to the id.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from pipeline.errors import InputError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CACHED_WORDS = 2_000_000  # some 200 MB; then the cache starts anew


def build_tokenizer(
    vocab: list[str], *, lowercase: bool, strip_accents: bool | None, split_chinese: bool
) -> Tokenizer:
    """BERT's tokenizer over a vocabulary: normalizer, pre-tokenizer, WordPiece, template."""
    ids = {token: index for index, token in enumerate(vocab)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=split_chinese,
        strip_accents=strip_accents, lowercase=lowercase,
    )  # fmt: skip
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, ids[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def read_vocab(path: Path) -> list[str]:
    """The entries of a vocab.txt, one a line.

    Raises:
        InputError: an entry stands there twice, or a special token is missing.
    """
    entries = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    entries = [entry.removesuffix("\r") for entry in entries]
    seen: dict[str, int] = {}
    for number, entry in enumerate(entries, 1):
        if entry in seen:
            raise InputError(f"{path}, line {number}: {entry!r} stands on line {seen[entry]} too")
        seen[entry] = number
    return check_special(entries, path)


def check_special(entries: list[str], path: Path) -> list[str]:
    """The entries, if all five special tokens are among them.

    Raises:
        InputError: some are missing.
    """
    missing = [token for token in SPECIAL_TOKENS if token not in set(entries)]
    if missing:
        raise InputError(f"{path}: no {', '.join(missing)} in this vocabulary; BERT needs them")
    return entries


def is_lowercase(vocab: list[str]) -> bool:
    """Whether a vocabulary is of an uncased model: no entry but special ones has a capital."""
    return not any(
        entry != entry.lower() for entry in vocab if not (entry[:1] == "[" and entry[-1:] == "]")
    )


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a folder, a tokenizer.json, or a vocab.txt (cased if it has capitals).

    Raises:
        InputError: there is none, or it cannot be one of BERT's.
    """
    if path.is_dir():
        path = path / ("tokenizer.json" if (path / "tokenizer.json").exists() else "vocab.txt")
    if not path.exists():
        raise InputError(
            f"{path}: no vocabulary there; run python -m pipeline.vocab first, or set vocab"
        )
    try:
        if path.suffix == ".txt":
            vocab = read_vocab(path)
            return build_tokenizer(
                vocab, lowercase=is_lowercase(vocab), strip_accents=None, split_chinese=True
            )
        tokenizer = Tokenizer.from_file(str(path))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from error
    except InputError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise InputError(f"{path}: not a tokenizer ({error})") from error
    check_special(list(tokenizer.get_vocab()), path)
    return tokenizer


class WordPiece:
    """A tokenizer that is fast on large chunks. Special tokens written in a text are plain text."""

    def __init__(self, tokenizer: Tokenizer):
        self.sha256 = hashlib.sha256(tokenizer.to_str(pretty=True).encode()).hexdigest()
        tokenizer.encode_special_tokens = True
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        entries = tokenizer.get_vocab(with_added_tokens=True)
        self.vocab: list[str] = sorted(entries, key=lambda token: entries[token])
        self.size = max(entries.values()) + 1
        self.special_ids = [entries[token] for token in SPECIAL_TOKENS]
        self.pad, self.unk, self.cls, self.sep, self.mask = self.special_ids
        self.dtype: Any = np.uint16 if self.size <= 2**16 else np.uint32
        # The cache: word -> row, and the rows' ids end to end.
        kind = json.loads(tokenizer.to_str())
        self.word_local = (
            (kind["normalizer"] or {}).get("type") == "BertNormalizer"
            and (kind["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
        )  # fmt: skip
        self._forget()

    @classmethod
    def load(cls, path: Path | str) -> "WordPiece":
        """From a folder that `vocab` made, a tokenizer.json, or a vocab.txt.

        Raises:
            InputError: see `load_tokenizer`.
        """
        return cls(load_tokenizer(Path(path)))

    def _forget(self) -> None:
        self._rows: dict[str, int] = {}
        self._ids = np.zeros(0, self.dtype)
        self._ends = np.zeros(1, np.int64)

    def encode(self, sentences: list[str]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Ids of all sentences end to end `(T,)` uint16 or uint32, and their lengths `(S,)`.

        No special tokens are added. T is best some hundred thousands.
        """
        if not self.word_local:
            return self._joined(self._library(sentences))
        words = pc.split_pattern(pa.array(sentences, pa.large_string()), " ")
        numbered = words.flatten().dictionary_encode()
        rows = self._lookup(numbered.dictionary.to_pylist())[numbered.indices.to_numpy()]
        starts, ends = self._ends[rows], self._ends[rows + 1]
        lengths = ends - starts
        total = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(starts - total[:-1], lengths)
        places += np.arange(total[-1])
        bounds = words.offsets.to_numpy()
        return self._ids[places], np.diff(total[bounds - bounds[0]])

    def _lookup(self, words: list[str]) -> npt.NDArray[np.int64]:
        """The cache's rows of distinct words; those it lacks are asked of the library."""
        if len(self._rows) > CACHED_WORDS:
            self._forget()
        rows = self._rows
        new = [word for word in words if word not in rows]
        if new:
            ids, lengths = self._joined(self._library(new))
            first = len(self._ends) - 1
            self._ids = np.concatenate([self._ids, ids])
            self._ends = np.concatenate([self._ends, self._ends[-1] + np.cumsum(lengths)])
            rows.update(zip(new, range(first, first + len(new)), strict=True))
        return np.fromiter(map(rows.__getitem__, words), np.int64, len(words))

    def _library(self, texts: list[str]) -> list[list[int]]:
        batch = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def _joined(self, rows: list[list[int]]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = (i for row in rows for i in row)
        return np.fromiter(flat, self.dtype, int(lengths.sum())), lengths
