"""Batches of texts by length."""

from collections.abc import Iterable, Iterator


def batches(texts: Iterable[str], characters: int) -> Iterator[list[str]]:
    """Group texts, in order, into lists of at least `characters`; the last may be shorter."""
    batch: list[str] = []
    length = 0
    for text in texts:
        batch.append(text)
        length += len(text)
        if length >= characters:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch
