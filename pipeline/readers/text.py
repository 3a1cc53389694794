"""Plain text: one document per file, paragraph, line or number of lines."""

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice, takewhile
from operator import attrgetter

from pipeline.common.schema import check
from pipeline.config import CorpusConfig
from pipeline.readers.base import Document, Documents, FileRange, FileRanges, ReadLog
from pipeline.readers.io import archives, compressed, text_lines
from pipeline.readers.io.text_lines import document_id
from pipeline.text import book_text

SUFFIXES = (".txt", ".text")
UNITS = ("file", "paragraph", "line")


class Reader:
    """Reader of text files; unlike `books`, it keeps headers and licences.

    A `document` is a `file`, a `paragraph` (delimited by blank lines), a `line`, or as many lines
    as a number says, for large files that do not mark where documents begin. `hard_wraps` joins the
    lines of a paragraph, and `numbered` lines lose their number and a tab.
    """

    def __init__(
        self,
        corpus: CorpusConfig,
        source: str,
        *,
        document: str | int = "file",
        hard_wraps: bool = False,
        numbered: bool | None = None,
    ):
        known = document in UNITS or (type(document) is int and document > 0)
        check(known, f"must be one of {', '.join(UNITS)}, or a number of lines", "corpus.options.document", document)
        self.corpus, self.document, self.hard_wraps = corpus, document, hard_wraps
        self.whole = archives.ArchiveFiles(corpus, source, SUFFIXES)
        self.members = () if document == "file" else compressed.suffixes(*SUFFIXES)
        self.files = text_lines.TextFiles(corpus, source, compressed.suffixes(*SUFFIXES), prose=True, numbered=numbered)
        check(not numbered or document != "file", "needs corpus.options.document=line", "corpus.options.numbered")
        self.numbered = numbered

    def splits(self, split_bytes: int) -> FileRanges:
        """Cut between files, or at any byte if a document is smaller and begins at a mark."""
        if isinstance(self.document, int):
            return self.files.splits(sys.maxsize)  # lines are counted from the first of a file
        reader = self.whole if self.document == "file" else self.files
        return reader.splits(split_bytes)

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the documents that begin in the file range."""
        for name, text in self._texts(file_range, log):
            yield Document(name, book_text.unwrapped(text, log.notes) if self.hard_wraps else text)

    def _texts(self, file_range: FileRange, log: ReadLog) -> Iterator[tuple[str, str]]:
        """Yield the ids and texts of documents."""
        if self.document == "file":
            for name, raw in self.whole.contents(file_range, log):
                if decoded := archives.decode_prose(name, raw, self.corpus, log, self.numbered):
                    yield name, decoded.text
            return
        lines, key = self.files.lines(file_range, log), "corpus.options.document"
        if isinstance(self.document, int):
            blocks = counted(lines, self.document, file_range)
        elif self.document == "line":
            blocks = ([line] for line in takewhile(attrgetter("owned"), lines) if line.text.strip())
        else:
            blocks = text_lines.blocks(lines, file_range, key, f"set {key}=line")
        for block in blocks:
            yield document_id(file_range, block[0].number), "\n".join(line.text for line in block)


def counted(lines: Iterable[text_lines.Line], count: int, file_range: FileRange) -> Iterator[list[text_lines.Line]]:
    """Yield `count` lines after another, unless all are blank; the last ones of a file may be fewer."""
    left = iter(lines)
    why = "no end; set corpus.options.document to fewer lines"
    for first in left:
        room, block = text_lines.document_budget(file_range, first, why), list[text_lines.Line]()
        for line in chain([first], islice(left, count - 1)):
            room.take(text_lines.memory_of(line))
            block.append(line)
        if any(line.text.strip() for line in block):
            yield block
