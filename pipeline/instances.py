"""Documents -> sentence pairs."""

import hashlib


def document_hash(text: str) -> bytes:
    """16 bytes that name a document by its text: its identity, its place, its randomness."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def held_out(digest: bytes, share: float) -> bool:
    """Whether the document goes to validation: a fixed `share` of all texts, by hash alone."""
    return int.from_bytes(digest[:8], "big") < share * 2.0**64
