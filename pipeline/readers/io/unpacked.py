"""Archives of files that a reader reads from a disk: their members are written to it, one after another."""

import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from pipeline.errors import InputError
from pipeline.readers.base import CorpusReader, Documents, FileRange, ReadLog
from pipeline.readers.io import archives, compressed, row_fields, table_logs
from pipeline.storage import places
from pipeline.storage.places import BROKEN_ZIP

_WHOLE = 2**62  # beyond the end of any file


class InArchives:
    """Wrapper of a reader of files, which reads those in archives, too; ids and errors name the member."""

    def __init__(self, reader: CorpusReader, members: tuple[str, ...]):
        self.reader, self.members = reader, members
        self.rows = isinstance(reader, row_fields.RowReader)

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Return the file ranges of the wrapped reader, which have the archives."""
        return self.reader.splits(split_bytes)

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the documents of a range, of an archive those of all its files that the reader reads."""
        if not file_range.path.lower().endswith(compressed.ARCHIVES):
            yield from self.reader.read(file_range, log)
            return
        compressed.CompressedFile(file_range.path).check(file_range)
        zipped = file_range.path.lower().endswith(".zip")
        tarred = ((member.name, file) for member, file in archives.tar_members(file_range, log))
        for name, file in _zipped(file_range.path) if zipped else tarred:
            hidden = archives.hidden(name) or (self.rows and table_logs.is_hidden(name))
            if file is None or not name.lower().endswith(self.members) or hidden:
                log[archives.not_read(name)] += 1
                continue
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, PurePosixPath(name).name)
                with path.open("wb") as target:
                    shutil.copyfileobj(file, target, compressed.CHUNK)
                if path.stat().st_size:
                    yield from self._documents(str(path), f"{file_range.path}/{name}", log)
                else:
                    log.notes["empty files"] += 1

    def _documents(self, path: str, name: str, log: ReadLog) -> Documents:
        inner = ReadLog(log.on_error)
        try:
            for document in self.reader.read(FileRange(path, 0, _WHOLE), inner):
                yield document._replace(id=document.id.replace(path, name))
        except InputError as error:
            record = {key: value.replace(path, name) for key, value in error.record().items() if isinstance(value, str)}
            raise error.but(**record) from error
        finally:
            inner.broken = [why.replace(path, name) for why in inner.broken]
            log.take(inner, "")


def _zipped(path: str) -> Iterator[tuple[str, IO[bytes] | None]]:
    place, last = places.at(path), "its beginning"
    members = archives.sized_members(place)
    try:
        with place.open("rb") as file, zipfile.ZipFile(file) as archive:
            for member, _, _ in members:
                last = member.filename
                if stat.S_ISLNK(member.external_attr >> 16):
                    yield last, None
                    continue
                with archive.open(member) as content:
                    yield last, content
    except BROKEN_ZIP as error:
        raise InputError(f"not a whole zip archive, after {last} ({error}); download it again", path=path) from error
