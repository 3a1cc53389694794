"""Sentences of the corpus with a masked word: examples of what a model fills in."""

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from pipeline.common.errors import InputError
from pipeline.shards import open_folder
from pipeline.tokenization.wordpiece import WordPiece

MASK = "[MASK]"
ENDS = frozenset(".!?。！？।؟۔")
INNER = frozenset(",;:'-、，")
SPACES = ("Ġ", "▁")  # as they begin an entry
ROWS = 2000  # that are looked at
WORDS = range(6, 25)  # tokens of a sentence, its full stop apart
UNENDED = 14  # tokens that are taken of a text whose script ends no sentences


def pieces(tokenizer: WordPiece) -> list[str]:
    """Return the entries of a vocabulary by id as WordPiece writes them, "##" within a word.

    Byte-level BPE and SentencePiece mark the beginnings of words instead, by the space before them.
    A part of a character has no text.
    """
    if tokenizer.is_wordpiece:
        return tokenizer.vocab
    texts = tokenizer.library.decode_batch([[number] for number in range(tokenizer.size)])
    words = [text.strip() for text in texts]
    return [
        word if entry.startswith(SPACES) or not _is_word(word) else f"##{word}"
        for entry, word in zip(tokenizer.vocab, words, strict=True)
    ]


def from_shards(folder: Path | str, entries: Sequence[str]) -> str | None:
    """Return the first plain sentence of held-out shards, its longest word masked, or None.

    `entries` are those of `pieces`.
    """
    return next(_sentences(folder, entries), None)


def spread(folder: Path | str, entries: Sequence[str], count: int) -> list[str]:
    """Return `count` such sentences from different places of the held-out text, fewer if it lacks.

    The same shards always give the same ones.
    """
    found = list(dict.fromkeys(_sentences(folder, entries)))
    found = found or list(dict.fromkeys(_sentences(folder, entries, ended=False)))
    step = max(1, len(found) // count)
    return found[::step][:count]


def _sentences(folder: Path | str, entries: Sequence[str], ended: bool = True) -> Iterator[str]:
    """Yield a sentence of each row that has a plain one; of the first split that has any."""
    for split in ("validation", "train"):
        any_found = False
        try:
            for tokens in islice(_texts(folder, split, entries), ROWS):
                text = _first(tokens) if ended else masked([*tokens[1 : UNENDED + 1], ""])
                if text is not None:
                    any_found = True
                    yield text
        except InputError:  # the shards are gone, or there are none of the split
            continue
        if any_found:
            return


def _first(tokens: Sequence[str]) -> str | None:
    """Return the first whole plain sentence of a text, masked."""
    ends = [place for place, token in enumerate(tokens) if token in ENDS]
    # The first sentence of a text may be cut.
    texts = (masked(tokens[before + 1 : end + 1]) for before, end in pairwise(ends))
    return next((text for text in texts if text is not None), None)


def _texts(folder: Path | str, split: str, entries: Sequence[str]) -> Iterator[list[str]]:
    """Yield the tokens of the first texts of all rows."""
    for shard in open_folder(folder, split):
        if shard.info.vocab_size != len(entries):
            return
        for row in range(shard.rows):
            start = int(shard.offsets[row])
            ids = shard.ids(start, start + int(shard.a_len[row]))
            yield [entries[number] for number in ids.tolist()]


def masked(tokens: Sequence[str]) -> str | None:
    """Return a sentence's text with its longest whole word masked, or None if not plain."""
    *inside, end = tokens
    if len(inside) not in WORDS or not all(token in INNER or _is_word(token.removeprefix("##")) for token in inside):
        return None
    pieces = [*inside[1:], end]
    whole = [
        place
        for place, (token, after) in enumerate(pairwise(pieces), 1)
        if _is_word(token) and not after.startswith("##")
    ]
    if not whole:
        return None
    best = max(whole, key=lambda index: len(inside[index]))
    found = ""
    for index, token in enumerate(tokens):
        if token.startswith("##"):
            found += token[2:]
        else:
            shown = MASK if index == best else token
            found += (" " if _spaced(found, token, tokens[best]) else "") + shown
    return found.strip()


def _is_word(token: str) -> bool:
    """Return whether a token is of letters and of marks on them, in any script."""
    return token != "" and all(unicodedata.category(character)[0] in "LM" for character in token)


def _spaced(before: str, token: str, hidden: str) -> bool:
    """Return whether a space comes between a text and its next token; `hidden` is masked."""
    if not before or not token or token in ENDS | INNER or before[-1] in "'-":
        return False
    last = hidden[-1] if before.endswith(MASK) else before[-1]
    return not (_is_chinese(last) and _is_chinese(token[0]))


def _is_chinese(character: str) -> bool:
    return unicodedata.name(character, "").startswith(("CJK", "HIRAGANA", "KATAKANA"))
