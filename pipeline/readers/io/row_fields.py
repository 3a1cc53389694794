"""Rows of named fields -> documents."""

from collections.abc import Mapping
from typing import Any

from pipeline.common.errors import ConfigError
from pipeline.readers import Document


class RowFields:
    """Which fields of a row hold what."""

    def __init__(self, text: str | list[str], title: str | None, id: str | None):
        """`text` names one field or several, which follow one another in a document.

        Raises:
            ConfigError: it names none.
        """
        names = [text] if isinstance(text, str) else text
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            raise ConfigError(f"corpus.options.text={text}: the name of a field, or several")
        self.text, self.title, self.id = names, title, id

    def names(self) -> list[str]:
        """All fields that are read."""
        return [*self.text, *(name for name in (self.title, self.id) if name)]

    def document(self, row: Mapping[str, Any], place: str) -> Document:
        """The document of a row; `place` names it where no field does.

        Raises:
            ValueError: a field is not there, or holds no text.
        """
        parts = [part for name in self.text if (part := prose(value(row, name), name))]
        title = value(row, self.title) if self.title else None
        name = value(row, self.id) if self.id else None
        return Document(
            place if name is None else str(name),
            "" if title is None else str(title),
            "\n".join(parts),
        )


def value(row: Mapping[str, Any], name: str) -> Any:
    """The value of a field, or of one inside it: `meta.text`.

    Raises:
        ValueError: it is not there.
    """
    if name in row:
        return row[name]
    found: Any = row
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            raise ValueError(
                f"no field {name}; its fields are {', '.join(map(str, row)) or 'none'}: "
                "set corpus.options.text"
            )
        found = found[part]
    return found


def prose(content: Any, name: str) -> str:
    """The text that a field holds.

    Raises:
        ValueError: it holds something else.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(part for item in content if (part := prose(item, name)))
    kind = type(content).__name__
    article = "an" if kind[0] in "aeiou" else "a"
    raise ValueError(f"field {name} holds {article} {kind}, not text")
