"""CSV and TSV files whose first line names the columns."""

import csv
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from unicodedata import normalize

from pipeline.common.schema import check
from pipeline.config import CorpusConfig
from pipeline.errors import InputError
from pipeline.readers.base import Documents, FileRange, FileRanges, ReadLog
from pipeline.readers.io import compressed, row_fields, text_lines
from pipeline.text import tables


class Reader(row_fields.LineRows):
    """Reader of columns; a file is one range, as a quoted field may have line ends.

    The `separator` is a tab, or else what divides the names. In TSV, quotation marks are text unless `quotes`.
    Without a `header` columns are named 0, 1, …
    """

    members = compressed.suffixes(".csv", ".tsv", ".tab")

    def __init__(
        self,
        corpus: CorpusConfig,
        source: str,
        *,
        text: str | list[str] = "text",
        id: str | None = None,
        where: str | None = None,
        html: bool = False,
        separator: str | None = None,
        quotes: bool | None = None,
        header: bool = True,
    ):
        super().__init__(corpus, source, text=text, id=id, where=where, html=html)
        fits = separator is None or (isinstance(separator, str) and len(separator) == 1 and separator not in '"\n\r')
        check(fits, "must be one character", "corpus.options.separator", separator)
        self.separator, self.quotes, self.header = separator, quotes, header

    def missing(self, name: str, known: Iterable[str], place: str) -> str:
        """Return what to type for a column that is missing."""
        why = super().missing(name, known, place)
        return f"{why}, or corpus.options.header=false where no line has names" if self.header else why

    def splits(self, split_bytes: int) -> FileRanges:
        """Return a range for each file."""
        return self.files.splits(sys.maxsize)

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the documents of the rows."""
        lines = self.files.lines(file_range, log)
        first = next(lines, None)
        if first is None:
            return
        separator = self.separator or tables.separator_of(first.text)
        quotes = separator != "\t" if self.quotes is None else self.quotes
        names: list[str] = []
        for number, fields in tables.fields(self._kept(chain([first], lines), file_range), separator, quotes):
            if isinstance(fields, csv.Error) and "end of data" in str(fields):  # all rows since are in this one
                path, at = text_lines.place(file_range, number)
                raise InputError("a quoted field without an end; correct the file", path=path, line=at)
            if isinstance(fields, csv.Error):
                why = f"is not CSV ({fields}); a quotation mark in a quoted field is doubled, not after a backslash"
                text_lines.bad_line(log, file_range, number, why)
                continue
            if not names:
                names = [normalize("NFC", name.strip()) for name in fields] if self.header else []
                names = names or list(map(str, range(len(fields))))
                self.check_names((normalize("NFC", name) for name in self.names()), names, file_range.path, number)
                if self.header:
                    continue
            try:
                if len(fields) != len(names):
                    said = f"{len(fields)} fields instead of {len(names)}, divided by {separator!r}"
                    raise ValueError(f"{said}; set corpus.options.separator, or of TSV corpus.options.quotes=true")
                row = dict(zip(names, fields, strict=True))
                yield from self.documents_of(row, text_lines.document_id(file_range, number), log)
            except ValueError as error:
                text_lines.bad_line(log, file_range, number, str(error))

    def _kept(self, lines: Iterator[text_lines.Line], file_range: FileRange) -> Iterator[str]:
        """Yield the lines; those of a row that has no end are more than may be kept."""
        open_quote = False
        for line in lines:
            if not open_quote:
                room = text_lines.document_budget(file_range, line, "a quoted field without an end")
            room.take(text_lines.memory_of(line))
            open_quote ^= line.text.count('"') % 2 == 1
            yield line.text.replace("\r", "\u2028") + "\n"  # csv takes it for the end of a row
