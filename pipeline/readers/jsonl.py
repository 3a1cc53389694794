"""JSON lines: one object a line, as published on the Hugging Face hub."""

import json
from collections.abc import Iterator
from typing import Any

from pipeline.config import CorpusConfig
from pipeline.readers import Document, FileRange, SkipCounts
from pipeline.readers.io import row_fields, text_lines
from pipeline.readers.lines import document_id

NAMES = text_lines.suffixes(".jsonl", ".json", ".ndjson")


class Reader:
    """Reads the fields `text` of objects: a name, or several that follow one another in a document.

    A dot leads into an object within the object. A field may hold a string, a list of strings
    (each a paragraph), or null (a document without text).
    """

    def __init__(
        self,
        corpus: CorpusConfig,
        source: str,
        *,
        text: str | list[str] = "text",
        title: str | None = None,
        id: str | None = None,
    ):
        self.fields = row_fields.RowFields(text, title, id)
        self.files = text_lines.TextFiles(corpus, source, NAMES)

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Cut the files anywhere."""
        return self.files.splits(split_bytes)

    def read(self, split: FileRange, tally: SkipCounts) -> Iterator[Document]:
        """The documents in the lines that the part owns."""
        for line in self.files.lines(split, tally):
            if not line.owned:
                return
            if not line.text.strip():
                continue
            try:
                row = parse(line.text)
                document = self.fields.document(row, document_id(split, line.number))
            except ValueError as error:
                tally.bad(text_lines.place(split, line.number), str(error))
                continue
            yield document


def parse(line: str) -> dict[str, Any]:
    """The object in a line.

    Raises:
        ValueError: there is none.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error}); every line must be an object") from error
    if not isinstance(row, dict):
        raise ValueError(f"a JSON {type(row).__name__} where every line must be an object")
    return row
