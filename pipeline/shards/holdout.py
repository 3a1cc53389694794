"""Which documents are held out, by their hashes, and the `validation_share` that holds out as many."""

import hashlib
import math

LOWEST = 8  # hashes kept


class LowestHashes(list[float]):
    """The lowest document hashes as sorted fractions; those below the share are held out."""

    def wants(self, digest: bytes) -> bool:
        """Return whether a document is among the first to be held out, of those seen so far."""
        return len(self) < LOWEST or _place(digest) < self[-1]

    def add(self, digest: bytes) -> None:
        """Add a document if it is among the first to be held out."""
        if self.wants(digest):
            self.merge([_place(digest)])

    def merge(self, other: list[float]) -> None:
        """Merge the lowest hashes of another part of the corpus."""
        self[:] = sorted({*self, *other})[:LOWEST]

    def share_for(self, count: int) -> float:
        """Return a validation_share with few digits that holds out `count` documents."""
        place = self[count - 1]
        for digits in range(-math.floor(math.log10(max(place, 1e-9))), 18):
            share = math.ceil(place * 10.0**digits) / 10.0**digits
            if place < share < 1 and (count == len(self) or share <= self[count]):
                return share
        return math.nextafter(place, 1)


def _place(digest: bytes) -> float:
    return int.from_bytes(digest[:8], "big") / 2.0**64


def sensible_count(documents: int) -> int:
    """Return how many of a few documents to hold out: sample tasks need four, pairs two."""
    return 4 if documents >= 8 else 2 if documents >= 4 else 1


def how_to_set(share: float) -> str:
    """Return how to set a share, for an error message."""
    return f"set validation_share={share} (in a run: prepare.validation_share={share} tasks.validation_share={share})"


def document_hash(text: str) -> bytes:
    """Return 16 bytes derived from the text: a document's identity, bucket and random key."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def is_held_out(digest: bytes, share: float) -> bool:
    """Return whether the document belongs to validation: a fixed `share` of texts, by hash."""
    return int.from_bytes(digest[:8], "big") < share * 2.0**64
