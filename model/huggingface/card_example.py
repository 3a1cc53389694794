"""The model card's example: a sentence of the corpus with a masked word."""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from pipeline.common.errors import InputError
from pipeline.shards import open_folder

MASK = "[MASK]"
ENDS = frozenset(".!?。！？।")
INNER = frozenset(",;:'-、，")
ROWS = 2000  # rows searched
WORDS = range(6, 25)  # tokens of a sentence without its final punctuation


def from_shards(folder: Path | str, entries: Sequence[str]) -> str | None:
    """Return the first plain sentence of held-out shards, its longest word masked, or None.

    `entries` is the vocabulary by id.
    """
    for split in ("validation", "train"):
        try:
            for tokens in islice(_texts(folder, split, entries), ROWS):
                ends = [index for index, token in enumerate(tokens) if token in ENDS]
                for before, end in pairwise(ends):  # the first sentence may be truncated
                    text = masked(tokens[before + 1 : end + 1])
                    if text is not None:
                        return text
        except InputError:  # the shards or this split do not exist
            continue
    return None


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
    if len(inside) not in WORDS or not all(
        token in INNER or token.removeprefix("##").isalpha() for token in inside
    ):
        return None
    pieces = [*inside[1:], end]
    whole = [
        index
        for index, (token, after) in enumerate(pairwise(pieces), 1)
        if token.isalpha() and not after.startswith("##")
    ]
    if not whole:
        return None
    best = max(whole, key=lambda index: len(inside[index]))
    found = ""
    for index, token in enumerate(tokens):
        if token.startswith("##"):
            found += token[2:]
        else:
            space = " " if found and token not in ENDS | INNER and found[-1] not in "'-" else ""
            found += space + (MASK if index == best else token)
    return found
