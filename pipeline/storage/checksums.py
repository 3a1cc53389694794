"""SHA-256 checksums of files and texts."""

import hashlib

from pipeline.storage import places


def sha256(path: places.File) -> str:
    """Return the SHA-256 checksum of a file in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def sha256_of(text: str) -> str:
    """Return the SHA-256 checksum of a text in hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()
