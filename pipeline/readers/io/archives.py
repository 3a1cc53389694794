"""One document per file: in folders, compressed, or in zip and tar archives."""

import stat
import tarfile
import zipfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import PurePosixPath
from typing import IO, Any, Self

from pipeline.config import CorpusConfig
from pipeline.errors import InputError
from pipeline.readers import formats
from pipeline.readers.base import FileRange, FileRanges, ReadLog
from pipeline.readers.files import FileList, files_of
from pipeline.readers.io import byte_ranges, compressed, size_limit
from pipeline.readers.io.compressed import ARCHIVES, TARS
from pipeline.storage import budget, placeholders, places
from pipeline.storage.budget import Budget
from pipeline.storage.places import BROKEN_ZIP, File
from pipeline.text import encodings
from pipeline.text.encodings import Decoded

BROKEN_TAR = (tarfile.TarError, EOFError, OSError, ValueError, TypeError, RecursionError)
IN_ARCHIVES = " files in archives"  # in counts, after an ending
Contents = Iterator[tuple[str, bytes]]  # names and bytes of documents
_HEADER = 2**20  # bytes of a long name or of attributes, which tarfile reads at once
_GNU = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_HEADERS = (*_GNU, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)


class ArchiveFiles:
    """Files and members of archives whose names end in one of `suffixes`.

    The files, sorted by name, count as one long file, as do the members of a zip archive: a file range
    is a byte range of it. A tar archive is not seekable and is one file range.
    """

    def __init__(self, corpus: CorpusConfig, source: str, suffixes: tuple[str, ...]):
        self.corpus, self.source, self.suffixes = corpus, source, suffixes
        self.loose = compressed.suffixes(*suffixes)

    @cached_property
    def files(self) -> FileList:
        """Return all files of the corpus, sorted."""
        return files_of(self.corpus, self.source, self.loose + ARCHIVES)

    @cached_property
    def texts(self) -> list[byte_ranges.Marked[File]]:
        """Return the files that are documents, with their marks and sizes."""
        loose = [path for path in self.files if not path.name.lower().endswith(ARCHIVES)]
        return [(path, *places.mark_and_size(path)) for path in loose]

    def splits(self, split_bytes: int) -> FileRanges:
        """Cut the files into parts of about `split_bytes`."""
        place = self.corpus.path or self.source
        ranges = byte_ranges.cut(place, self.texts, split_bytes, loose=True)
        for path in self.files:
            if path.name.lower().endswith(TARS):
                ranges.append(FileRange(str(path), 0, path.stat().st_size, compressed.CompressedFile(path).stamp))
            elif path.name.lower().endswith(ARCHIVES):
                ranges += byte_ranges.cut(str(path), sized_members(path), split_bytes)
        if 0 < len(self.texts) < len(self.files):  # else `SizeLimit` can, as for any reader
            ranges = size_limit.cut(ranges, self.files, place, self.corpus)
        return FileRanges(ranges, self.files.notes)

    def contents(self, file_range: FileRange, log: ReadLog) -> Contents:
        """Yield names and bytes of the documents that begin in the file range.

        Raises:
            InputError: a file was changed or is damaged.
        """
        path, name = places.at(file_range.path), file_range.path.lower()
        if name.endswith(TARS) and not path.is_dir():
            yield from self._tar(file_range, log)
        elif name.endswith(ARCHIVES) and not path.is_dir():
            yield from self._zip(file_range, log)
        else:
            for file in byte_ranges.items_in_range(self.texts, file_range, log):
                if (raw := self._file(file, log)) is not None:
                    yield str(file), raw

    def wanted(self, name: str) -> bool:
        """Return whether an archive's member is a document: neither hidden nor what macOS adds."""
        return name.lower().endswith(self.loose) and not hidden(name)

    def _budget(self, name: str) -> Budget:
        return Budget(
            lambda: InputError(
                f"larger than {budget.DOCUMENT:,} bytes, but corpus.reader={self.corpus.reader} reads each file as "
                "one document; split it, or choose another reader",
                "corpus.reader",
                path=name,
            )
        )

    def _file(self, path: File, log: ReadLog) -> bytes | None:
        """Return a document's decompressed bytes; None if it is broken and may be skipped."""
        try:
            self._budget(str(path)).take(path.stat().st_size)
            return self._unpacked(str(path), path.read_bytes(), log)
        except FileNotFoundError as error:
            raise InputError("was deleted during the run; rerun the command", path=path) from error
        except OSError as error:
            log.reject(f"cannot be read ({error.strerror})", path)
            return None

    def _unpacked(self, name: str, raw: bytes, log: ReadLog) -> bytes | None:
        """Return a document's bytes, which may be compressed whatever its name is; None as `_file`."""
        if name.lower().endswith(".epub") or not (raw or name.lower().endswith(compressed.PACKED)):
            return raw
        try:
            return compressed.decompressed(name, raw, self._budget(name))
        except InputError as error:
            log.reject(error.problem, name)
            return None

    def _zip(self, file_range: FileRange, log: ReadLog) -> Contents:
        path = places.at(file_range.path)
        members = sized_members(path)
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            for member in byte_ranges.items_in_range(members, file_range, log):
                name = f"{path}/{member.filename}"
                if stat.S_ISLNK(member.external_attr >> 16) or not self.wanted(member.filename):
                    log[not_read(member.filename)] += 1
                    continue
                try:
                    raw = budget.unzipped(archive, member, self._budget(name))
                except BROKEN_ZIP as error:
                    log.reject(f"cannot be read ({error})", name)
                    continue
                if (content := self._unpacked(name, raw, log)) is not None:
                    yield name, content

    def _tar(self, file_range: FileRange, log: ReadLog) -> Contents:
        for member, file in tar_members(file_range, log):
            if file is None or not self.wanted(member.name):
                log[not_read(member.name)] += 1
                continue
            name = f"{file_range.path}/{member.name}"
            self._budget(name).take(member.size)
            if (content := self._unpacked(name, file.read(), log)) is not None:
                yield name, content


class FileReader(ArchiveFiles):
    """What readers of such files have in common; the names end in one of `SUFFIXES`."""

    SUFFIXES: tuple[str, ...]

    def __init__(self, corpus: CorpusConfig, source: str):
        super().__init__(corpus, source, self.SUFFIXES)


def tar_members(file_range: FileRange, log: ReadLog) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Stream the members of a tar archive but its folders; links and devices have no content.

    Raises:
        InputError: the archive is damaged.
    """
    path, last = file_range.path, "its beginning"
    stream: Any = compressed.Stream(file_range, log)
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header, ignore_zeros=True) as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # all that were read so far
                last = member.name
                if not member.isdir():
                    yield member, archive.extractfile(member) if member.isfile() else None
        while stream.read(compressed.CHUNK):  # the checksum of what is compressed comes last
            pass
    except BROKEN_TAR as error:
        why = f"damaged tar archive after {last} ({error}); download it again"
        raise placeholders.error_of(places.at(path), why) from error


def not_read(name: str) -> str:
    """Return the reason for which an archive's member is skipped: its ending."""
    return f"{PurePosixPath(name).suffix.lower() or 'other'}{IN_ARCHIVES}"


def hidden(name: str) -> bool:
    """Return whether an archive's member is hidden, or what macOS adds."""
    return any(part != ".." and part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)


class _Header(tarfile.TarInfo):
    """A header of a tar archive; one that is damaged is an error.

    For tarfile such a header would be the end of the archive. Zeros are not the end: archives may follow one another.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Parse a header.

        Raises:
            tarfile.ReadError: it is damaged.
            tarfile.HeaderError: the archive ends here.
        """
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if any(buf):
                raise tarfile.ReadError(str(error)) from error
            raise
        if header.type in _HEADERS and header.size > _HEADER:
            raise tarfile.ReadError(f"a header of {header.size:,} bytes")
        return header


def sized_members(path: File) -> list[byte_ranges.Marked[zipfile.ZipInfo]]:
    """Return the files in a zip archive with marks, and the sizes that they claim, if that is possible.

    Raises:
        InputError: it is not a readable zip archive, or has a password.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = [m for m in archive.infolist() if m.filename and not m.is_dir()]
    except BROKEN_ZIP as error:
        raise placeholders.error_of(path, f"not a readable zip archive ({error}); download it again") from error
    if any(member.flag_bits & 1 for member in members):
        raise InputError("is protected by a password; extract it, and name the folder", path=path)
    mark, _ = places.mark_and_size(path)
    most = budget.DOCUMENT + 1
    return [(one, f"{mark}\x1f{one.header_offset}", min(one.file_size, most)) for one in members]


def decode(name: str, raw: bytes, corpus: CorpusConfig, log: ReadLog) -> Decoded | None:
    """Decode a document and note the encoding; return None if it is broken and skipped."""
    # A byte order mark takes precedence over the corpus's stated encoding, as in files of lines.
    stated = encodings.marked(raw) or corpus.encoding
    decoded = encodings.decode(raw, corpus.language, stated)
    if corpus.encoding is not None and not decoded.whole:
        log.reject(f"not valid {decoded.encoding}", name)
        return None
    if why := encodings.fault(raw, decoded.text, None if stated else decoded.encoding):
        log.reject(why, name)
        return None
    if not decoded.encoding.startswith("utf-8"):
        log.notes[f"read as {decoded.encoding}"] += 1
    if not decoded.whole:
        log.notes["letters that could not be decoded"] += 1
    if (ends := encodings.line_ends(decoded.text)) != "LF":
        log.notes[f"{ends} line ends"] += 1
    return decoded


def decode_prose(
    name: str, raw: bytes, corpus: CorpusConfig, log: ReadLog, numbered: bool | None = None
) -> Decoded | None:
    """Decode a document, as `decode`, that must begin as prose does; `numbered=False`: its lines may have numbers."""
    head = raw[:_HEADER].decode(encodings.marked(raw) or "latin-1", "replace")
    why, decoded = formats.not_prose(head), None
    if why is None and (decoded := decode(name, raw, corpus, log)):
        head = decoded.text[:_HEADER]
        why = formats.not_prose(head) or (None if numbered is False else formats.numbers(head))
    if why:
        log.reject(why, name)
        return None
    log.notes.update([formats.MARKED] * formats.is_marked(head))
    return decoded
