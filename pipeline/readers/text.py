"""Plain text: one document per file, paragraph, line or number of lines."""

import sys
from collections.abc import Iterable
from itertools import chain, islice

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
        if self.document == "file":
            yield from self._files(file_range, log)
            return
        lines = self.files.lines(file_range, log)
        if isinstance(self.document, int):
            yield from counted(lines, self.document, file_range)
            return
        if self.document == "line":
            for line in lines:
                if not line.owned:
                    return
                if line.text.strip():
                    yield Document(document_id(file_range, line.number), line.text)
            return
        key = "corpus.options.document"
        for block in text_lines.blocks(lines, file_range, key, f"set {key}=line"):
            text = "\n".join(line.text for line in block)
            yield Document(
                document_id(file_range, block[0].number),
                book_text.unwrapped(text, log.notes) if self.hard_wraps else text,
            )

    def _files(self, file_range: FileRange, log: ReadLog) -> Documents:
        for name, raw in self.whole.contents(file_range, log):
            if decoded := archives.decode_prose(name, raw, self.corpus, log, self.numbered):
                text = book_text.unwrapped(decoded.text, log.notes) if self.hard_wraps else decoded.text
                yield Document(name, text)


def counted(lines: Iterable[text_lines.Line], count: int, file_range: FileRange) -> Documents:
    """Yield documents of `count` lines; the last one of a file may have fewer."""
    left = iter(lines)
    why = "no end; set corpus.options.document to fewer lines"
    for first in left:
        room, block = text_lines.document_budget(file_range, first, why), list[str]()
        for line in chain([first], islice(left, count - 1)):
            room.take(text_lines.memory_of(line))
            block.append(line.text)
        text = "\n".join(block)
        if text.strip():
            yield Document(document_id(file_range, first.number), text)
