"""Books, one a file: plain text or Markdown, in folders or inside zip and tar archives."""

import os
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath

from pipeline.config import CorpusConfig
from pipeline.corpora import Document, Split, files_of, ranges
from pipeline.errors import InputError
from pipeline.text import books

TEXTS = (".txt", ".md")
TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
ARCHIVES = (".zip", *TARS)
LARGEST = 256 * 2**20  # bytes; what is longer is no book, and would not fit in a worker


class Reader:
    """Reads folders of books.

    The text files, in order of their names, count as one long file, and so do the members of a
    zip archive: a split is a range of bytes of it. A tar archive can only be read from its
    beginning, so it is one split.
    """

    def __init__(self, corpus: CorpusConfig, source: str):
        self.corpus = corpus
        self.source = source

    @cached_property
    def files(self) -> list[Path]:
        """Everything there, sorted."""
        return files_of(self.corpus, self.source, TEXTS + ARCHIVES)

    @cached_property
    def texts(self) -> list[tuple[Path, int]]:
        """The files that are books, and their sizes."""
        loose = [path for path in self.files if not path.name.endswith(ARCHIVES)]
        return [(path, path.stat().st_size) for path in loose]

    def splits(self, split_bytes: int) -> list[Split]:
        """Cut the books into parts of about `split_bytes`."""
        place = self.corpus.path or self.source
        found = ranges.cut(place, (size for _, size in self.texts), split_bytes)
        for path in self.files:
            if path.name.endswith(TARS):
                found.append(Split(str(path), 0, path.stat().st_size))
            elif path.name.endswith(ARCHIVES):
                sizes = (member.file_size for member in zip_members(path))
                found += ranges.cut(str(path), sizes, split_bytes)
        return found

    def read(self, split: Split, tally: Counter[str]) -> Iterator[Document]:
        """Yield the books that begin in the split."""
        if split.path.endswith(TARS) and Path(split.path).is_file():
            books_of_split = read_tar(Path(split.path), tally)
        elif split.path.endswith(ARCHIVES) and Path(split.path).is_file():
            books_of_split = read_zip(Path(split.path), split, tally)
        else:
            owned = ranges.owned(self.texts, split)
            books_of_split = ((str(path), read_file(path)) for path in owned)
        for name, raw in books_of_split:
            book = books.parse(raw)
            if book.encoding == "cp1252":
                tally["read as cp1252"] += 1
            if book.mended:
                tally["mis-encoded letters mended"] += 1
            yield Document(name, book.title or PurePosixPath(name).stem, book.text)


def check_size(name: str, size: int) -> None:
    """Refuse what cannot be one book.

    Raises:
        InputError: it is larger than any book.
    """
    if size > LARGEST:
        raise InputError(
            f"{name}: {size:,} bytes, but corpus.reader=books takes each file for one book; "
            "cut it into books, or choose another reader"
        )


def read_file(path: Path) -> bytes:
    """The bytes of a book.

    Raises:
        InputError: it cannot be read.
    """
    try:
        check_size(str(path), path.stat().st_size)
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def is_text(name: str) -> bool:
    """Whether an archive's member is a book, by its name; macOS leaves shadow files like `._x`."""
    return name.lower().endswith(TEXTS) and not os.path.basename(name).startswith(".")


def zip_members(path: Path) -> list[zipfile.ZipInfo]:
    """The files in a zip archive, in its order.

    Raises:
        InputError: it is not a zip archive.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return [member for member in archive.infolist() if not member.is_dir()]
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path}: not a zip archive that can be read ({error})") from error


def read_zip(path: Path, split: Split, tally: Counter[str]) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the books that begin in the split.

    Raises:
        InputError: a member is broken or encrypted.
    """
    members = ((member, member.file_size) for member in zip_members(path))
    with zipfile.ZipFile(path) as archive:
        for member in ranges.owned(members, split):
            name = f"{path}/{member.filename}"
            if not is_text(member.filename):
                tally["not text"] += 1
                continue
            check_size(name, member.file_size)
            try:
                raw = archive.read(member)
            except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError) as error:
                raise InputError(f"{name}: cannot be read ({error})") from error
            yield name, raw


def read_tar(path: Path, tally: Counter[str]) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the books of a tar archive, streamed: nothing is put on disk.

    Raises:
        InputError: the archive is broken.
    """
    last = "its beginning"
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                last = member.name
                if not member.isfile():
                    continue
                if not is_text(member.name):
                    tally["not text"] += 1
                    continue
                check_size(f"{path}/{member.name}", member.size)
                file = archive.extractfile(member)
                assert file is not None  # regular files have content
                yield f"{path}/{member.name}", file.read()
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise InputError(f"{path}: broken tar archive after {last} ({error})") from error
