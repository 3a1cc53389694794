"""JSON lines: one object a line, as published on the Hugging Face hub."""

import json
from collections.abc import Iterator
from typing import Any

from pipeline.config import CorpusConfig
from pipeline.corpora import Document, Split, Tally, fields, textfile
from pipeline.corpora.lines import document_id

NAMES = textfile.suffixes(".jsonl", ".json", ".ndjson")


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
        self.fields = fields.Fields(text, title, id)
        self.files = textfile.TextFiles(corpus, source, NAMES)

    def splits(self, split_bytes: int) -> list[Split]:
        """Cut the files anywhere."""
        return self.files.splits(split_bytes)

    def read(self, split: Split, tally: Tally) -> Iterator[Document]:
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
                tally.bad(textfile.place(split, line.number), str(error))
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
