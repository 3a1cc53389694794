"""A part of a large corpus: files in a keyed order until a number of bytes is reached.

The order is a function of the files' names below the corpus's folder and of the seed: the same
limit gives the same documents from any store and on any runner. The last file is used in part: in
whole file ranges of about 1/`PARTS` of the limit, where its format can be divided.
"""

import glob
import hashlib
import re

from pipeline.config import CorpusConfig
from pipeline.readers.base import CorpusReader, Documents, FileRange, FileRanges, ReadLog, notes_of
from pipeline.storage import places
from pipeline.storage.places import File

PARTS, LEAST = 20, 4096  # LEAST: bytes of a file range


def choose(files: list[File], place: str, corpus: CorpusConfig) -> list[File]:
    """Return the files of a corpus at `place` that its limit keeps, sorted as they were."""
    if corpus.limit is None:
        return files
    kept, total = set(), 0
    for file in _in_keyed_order(files, place, corpus.limit_seed):
        kept.add(str(file))
        total += file.stat().st_size
        if total >= corpus.limit_bytes:
            break
    return [file for file in files if str(file) in kept]


def cut(ranges: list[FileRange], files: list[File], place: str, corpus: CorpusConfig) -> list[FileRange]:
    """Return the file ranges of files that `choose` has kept, without the end of the last file."""
    if corpus.limit is None or not files:
        return ranges
    *whole, last = _in_keyed_order(files, place, corpus.limit_seed)
    left = corpus.limit_bytes - sum(file.stat().st_size for file in whole)
    share = left / max(1, last.stat().st_size)
    ends = max((each.end for each in ranges if each.path == str(last)), default=0)
    return [each for each in ranges if each.path != str(last) or each.start < max(1, share * ends)]


def _in_keyed_order(files: list[File], place: str, seed: int) -> list[File]:
    top = place
    if glob.has_magic(place):
        top = re.split(r"[*?[]", place, maxsplit=1)[0].rpartition("/")[0]
    top = str(places.at(top)) if top else ""  # spelled as in the names of files

    def key(file: File) -> tuple[bytes, str]:
        name = str(file).removeprefix(top).lstrip("/")
        mark = f"{seed}\x1f{name}".encode(errors="surrogateescape")  # of any bytes
        return hashlib.blake2b(mark, digest_size=8).digest(), name

    return sorted(files, key=key)


class SizeLimit:
    """Wrapper of a reader whose files `choose` has chosen; it leaves out the end of the last."""

    def __init__(self, reader: CorpusReader, corpus: CorpusConfig, source: str):
        self.reader, self.corpus, self.place = reader, corpus, corpus.path or source

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Return the file ranges of the wrapped reader up to the limit."""
        ranges = self.reader.splits(min(split_bytes, max(LEAST, self.corpus.limit_bytes // PARTS)))
        paths = list(dict.fromkeys(file_range.path for file_range in ranges))
        if self.place in paths and not places.at(self.place).is_file():
            return ranges  # small files in one; their reader has cut an archive next to them
        kept = cut(ranges, [places.at(path) for path in paths], self.place, self.corpus)
        return FileRanges(kept, notes_of(ranges))

    def read(self, file_range: FileRange, log: ReadLog, /) -> Documents:
        """Yield the documents of the wrapped reader."""
        return self.reader.read(file_range, log)
