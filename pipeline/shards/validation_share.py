"""Which `validation_share` holds out how many documents: known from the hashes, never guessed."""

import math
from bisect import insort

LOWEST = 8  # hashes that are remembered


class LowestHashes(list[float]):
    """The lowest of the documents' places by hash, in order; those below the share are held out."""

    def wants(self, digest: bytes) -> bool:
        """Return whether a document is one of the first to be held out, as far as is known."""
        return len(self) < LOWEST or _place(digest) < self[-1]

    def add(self, digest: bytes) -> None:
        """Remember a document, if it is one of the first to be held out."""
        if self.wants(digest) and (place := _place(digest)) not in self:
            insort(self, place)
            del self[LOWEST:]

    def merge(self, other: list[float]) -> None:
        """Take in what another part of the corpus remembers."""
        self[:] = sorted({*self, *other})[:LOWEST]

    def share_for(self, count: int) -> float:
        """Return a short number, as validation_share, that holds out `count` documents."""
        place = self[count - 1]
        for digits in range(-math.floor(math.log10(max(place, 1e-9))), 18):
            share = math.ceil(place * 10.0**digits) / 10.0**digits
            if place < share < 1 and (count == len(self) or share <= self[count]):
                return share
        return math.nextafter(place, 1)


def _place(digest: bytes) -> float:
    return int.from_bytes(digest[:8], "big") / 2.0**64


def sensible_count(documents: int) -> int:
    """Return how many of a few documents to hold out: the sample tasks want four, pairs two."""
    return 4 if documents >= 8 else 2 if documents >= 4 else 1


def advice(share: float) -> str:
    """Return the words to type for a share."""
    return (
        f"set validation_share={share} (in a run: prepare.validation_share={share} "
        f"tasks.validation_share={share})"
    )
