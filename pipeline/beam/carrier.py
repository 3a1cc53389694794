"""What tasks leave for later tasks: in files of the folder of `out`, or carried by the engine.

A task puts blobs and sends tokens. Each attempt of a task has a file of its own, so that a token
never names the bytes of another. The file is whole when the task has ended: only what is behind a
GroupByKey may read it.
"""

import contextlib
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

Token = bytes | tuple[str, int, int]  # the blob; or its file, where it starts there, and its size
Part = tuple[str, int, int, Token]  # kind, task that left it, number within that, content

Parts = Iterable[Part]

ENDING = ".parts"
ALIGNED = 64  # bytes: numbers are mapped


class Carrier(contextlib.ExitStack):
    """The blobs of a task; `folder` is None where the engine carries them."""

    def __init__(self, folder: Path | None):
        super().__init__()
        self.path = None if folder is None else folder / f"{secrets.token_hex(8)}{ENDING}"
        self.file: BinaryIO | None = None

    def put(self, blob: bytes | pa.Buffer) -> Token:
        """Leave a blob; return its token."""
        if self.path is None:
            return bytes(blob)
        if self.file is None:
            self.file = self.enter_context(self.path.open("wb"))
        start = self.file.tell()
        self.file.write(blob)
        self.file.write(bytes(-len(blob) % ALIGNED))
        return self.path.name, start, len(blob)


def blobs(folder: Path, parts: Parts, kind: str) -> Iterator[pa.Buffer]:
    """Yield the blobs of one kind in the order of the tasks that left them, whatever that of `parts`.

    A retried task may have left some twice.
    """
    found = {part[1:3]: part[3] for part in parts if part[0] == kind}
    files: dict[str, pa.Buffer] = {}
    for _, token in sorted(found.items()):
        if isinstance(token, bytes):
            yield pa.py_buffer(token)
            continue
        name, start, size = token
        if name not in files:
            with pa.memory_map(str(folder / name)) as file:
                files[name] = file.read_buffer()
        yield files[name].slice(start, size)
