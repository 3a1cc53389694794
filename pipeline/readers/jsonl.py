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
            first, row = split.start == 0 and line.number == 1, None
            try:
                row = parse(line.text)
                document = self.fields.document(row, document_id(split, line.number))
            except ValueError as error:
                form = other_form(line.text) if first else None
                # Of a file in another form, or with other fields, all lines would be left out.
                alone = not first or (row is None and form is None)
                where = text_lines.place(split, line.number)
                tally.bad(where, form or str(error), offer_skip=alone)
                continue
            yield document


def other_form(first: str) -> str | None:
    """Return what a file is that begins with this line, where it is JSON but not JSON lines."""
    if first.lstrip().startswith("["):
        return "a JSON array, but every line must be an object; jq -c '.[]' FILE writes such lines"
    if first.strip() == "{":
        return "an object of several lines, but each must be on one; jq -c . FILE writes it so"
    return None


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
