"""A sentence of the corpus with a masked word: the model card's example."""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from pipeline.common.errors import InputError
from pipeline.shards import open_folder

MASK = "[MASK]"
ENDS = frozenset(".!?。！？।")
INNER = frozenset(",;:'-、，")
ROWS = 2000  # that are looked at
WORDS = range(6, 25)  # tokens of a sentence, its full stop apart


def from_shards(folder: Path | str, entries: Sequence[str]) -> str | None:
    """Return the first plain sentence of held-out shards, its longest word masked, or None.

    `entries` are the vocabulary by id.
    """
    for split in ("validation", "train"):
        try:
            for tokens in islice(_texts(folder, split, entries), ROWS):
                ends = [place for place, token in enumerate(tokens) if token in ENDS]
                for before, end in pairwise(ends):  # the first sentence of a text may be cut
                    text = masked(tokens[before + 1 : end + 1])
                    if text is not None:
                        return text
        except InputError:  # the shards are gone, or there are none of the split
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
    """Return a sentence's text with its longest whole word masked; None where it is not plain."""
    *inside, end = tokens
    if len(inside) not in WORDS or not all(
        token in INNER or token.removeprefix("##").isalpha() for token in inside
    ):
        return None
    pieces = [*inside[1:], end]
    whole = [
        place
        for place, (token, after) in enumerate(pairwise(pieces), 1)
        if token.isalpha() and not after.startswith("##")
    ]
    if not whole:
        return None
    best = max(whole, key=lambda place: len(inside[place]))
    found = ""
    for place, token in enumerate(tokens):
        if token.startswith("##"):
            found += token[2:]
        else:
            space = " " if found and token not in ENDS | INNER and found[-1] not in "'-" else ""
            found += space + (MASK if place == best else token)
    return found
