"""How much of one document, or of one table, is read into memory.

Whatever unpacks, parses or gathers what others wrote counts while it reads, in a `Budget`.
"""

import zipfile
from collections.abc import Callable, Iterable, Sequence
from typing import AnyStr

DOCUMENT = 256 * 2**20  # bytes; a larger document would not fit in a worker's memory
TABLE = 2 * DOCUMENT  # of a task: the largest common one, SNLI as JSON lines, has 487 MB
FIELDS = 4 * TABLE  # what a table may become when it is parsed
KEPT = 64  # bytes that Python keeps at least of each line, tag, entity or value
PIECES = (b"<", b"=", b"&", b"\n")  # of XML: each makes an element, an attribute or a text of its own
_STEP = 2**12  # bytes of a zip member unpacked at once: of bzip2 they may become 80 MB


class Budget:
    """Bytes that may still be read of a document, or of a table."""

    def __init__(self, refused: Callable[[], Exception], limit: int | None = None):
        """Allow `limit` bytes (None: those of a document); beyond them, raise `refused()`."""
        self.refused, self.left = refused, DOCUMENT if limit is None else limit

    def take(self, size: int) -> None:
        """Count bytes; raise the error of this budget if they are more than are left."""
        self.left -= size
        if self.left < 0:
            raise self.refused()

    def gathered(self, pieces: Iterable[bytes]) -> bytes:
        """Count and concatenate pieces."""
        content = bytearray()
        for piece in pieces:
            self.take(len(piece))
            content += piece
        return bytes(content)


def parsed_size(data: AnyStr, marks: Sequence[AnyStr]) -> int:
    """Return the bytes that `data` may take when it is parsed, with a piece for each mark."""
    return len(data) + KEPT * sum(map(data.count, marks))


def unzipped(archive: zipfile.ZipFile, member: zipfile.ZipInfo | str, budget: Budget) -> bytes:
    """Return the content of a member, whose header may lie about its size."""
    with archive.open(member) as file:
        return budget.gathered(iter(lambda: file.read(_STEP), b""))
