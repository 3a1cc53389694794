"""What tasks leave for later tasks: in files of the folder of `out`, or carried by the engine.

A task puts blobs and sends tokens. Each attempt of a task has a file of its own, so that a token
never names the bytes of another. The file is whole when the task has ended: only what is behind a
GroupByKey may read it.
"""

import contextlib
import itertools
import secrets
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

Token = bytes | tuple[str, int, int]  # the blob; or its file, where it starts there, and its size
Part = tuple[str, int, int, int, Token]  # kind, task that left it, number within that, piece, content

Parts = Iterable[Part]

ENDING = ".parts"
ALIGNED = 64  # bytes: numbers are mapped
PIECE = 2**20  # bytes of a value that an engine carries: Flink sorts in buffers of a few MB, which hold whole values


class Carrier(contextlib.ExitStack):
    """The blobs of a task; `folder` is None where the engine carries them, in pieces."""

    def __init__(self, folder: Path | None, piece: int = PIECE):
        super().__init__()
        self.piece = piece
        self.path = None if folder is None else folder / f"{secrets.token_hex(8)}{ENDING}"
        self.file: BinaryIO | None = None

    def put(self, blob: bytes | pa.Buffer) -> list[Token]:
        """Leave a blob; return the tokens of its pieces."""
        if self.path is None:
            return [bytes(blob[start : start + self.piece]) for start in range(0, max(len(blob), 1), self.piece)]
        if self.file is None:
            self.file = self.enter_context(self.path.open("wb"))
        start = self.file.tell()
        self.file.write(blob)
        self.file.write(bytes(-len(blob) % ALIGNED))
        return [(self.path.name, start, len(blob))]


def blobs(folder: Path, parts: Parts, kind: str) -> Iterator[pa.Buffer]:
    """Yield the blobs of one kind in the order of the tasks that left them, whatever that of `parts`.

    A retried task may have left some twice.
    """
    found = {(task, number, piece): token for each, task, number, piece, token in parts if each == kind}
    files: dict[str, pa.Buffer] = {}
    for _, places in itertools.groupby(sorted(found), itemgetter(0, 1)):
        tokens = [found[place] for place in places]
        if isinstance(tokens[0], bytes):
            yield pa.py_buffer(b"".join(cast(list[bytes], tokens)))
            continue
        name, start, size = tokens[0]
        if name not in files:
            with pa.memory_map(str(folder / name)) as file:
                files[name] = file.read_buffer()
        yield files[name].slice(start, size)
