"""JSON lines: one object per line, as published on the Hugging Face hub."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from pipeline.readers import formats
from pipeline.readers.base import Documents, FileRange, ReadLog
from pipeline.readers.io import compressed, row_fields, text_lines
from pipeline.storage import strict_json

_LOOKED_AT = 20  # lines that may have a field that the first lacks
_NO_TEXTS = "; if this file is none of the texts, name these by corpus.path='FOLDER/*.jsonl'"


class Reader(row_fields.LineRows):
    """Reader of the fields of objects."""

    members = compressed.JSON_LINES

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the documents in the lines that the file range owns."""
        lines: Iterator[text_lines.Line] = self.files.lines(file_range, log)
        key = f'"{self.text[0].partition(".")[0]}"'
        while line := next(lines, None):
            if not line.owned:
                return
            if not line.text.strip():
                continue
            first, row = file_range.start == 0 and line.number == 1, None
            try:
                row = parse(line.text)
                yield from self.documents_of(row, text_lines.document_id(file_range, line.number), log)
            except ValueError as error:
                form = other_form(line.text) or formats.not_prose(line.text, "jsonl") if first else None
                # In a file of another format, or with other fields, every line would be skipped.
                later = False
                if first and row is not None and form is None and key not in line.text:
                    head = list(islice(lines, _LOOKED_AT))
                    later, lines = any(key in each.text for each in head), chain(head, lines)
                alone = not first or later or (row is None and form is None)
                other = not alone and file_range.path.lower().endswith(".json")  # as what says of a data set what it is
                fault = str(error).partition("; set ")[0] if later else f"{form or error}"
                why = f"{fault}{_NO_TEXTS if other else ''}"
                text_lines.bad_line(log, file_range, line.number, why, offer_skip=alone)


def other_form(first: str) -> str | None:
    """Return the fault and the cure if the first line begins JSON that is not JSON lines."""
    if first.startswith("{'"):
        return "is an object of Python, not of JSON; write it by json.dumps(ast.literal_eval(LINE))"
    if first.lstrip().startswith("["):
        return "is a JSON array, but every line must be an object; convert with jq -c '.[]' FILE"
    if first.strip() == "{":
        return "the object spans several lines; put each object on one line with jq -c . FILE"
    return None


def parse(line: str) -> dict[str, Any]:
    """Parse a line that must hold one JSON object; raise ValueError otherwise."""
    try:
        row = strict_json.parse_line(line, strict_json.by_name)
    except ValueError as error:
        raise ValueError(f"{error}; every line must be an object") from error
    if not isinstance(row, dict):
        raise ValueError(f"is a JSON {type(row).__name__}; every line must be an object")
    return row
