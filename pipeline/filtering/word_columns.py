"""Files of one word per line, with labels in further columns, as those of CoNLL's shared tasks."""

import re
from collections import Counter

_SAME = 0.95  # share of the lines with the same number of columns; others are marks of documents
_NUMBER = re.compile(r"\d+(?:[-.]\d+)?")  # of a word in its sentence (CoNLL-U, CoNLL-2012)
_BEFORE = 3  # columns that may stand before the word: of the document, its part, the word's number


def words(lines: list[str]) -> list[str]:
    """Return the column of words; nothing if the lines are no rows of columns.

    It is the first one, or the one after the last number in front.
    """
    rows = [line.split() for line in lines if line.strip() and not line.startswith("# ")]
    if not rows:
        return []
    ((width, count),) = Counter(map(len, rows)).most_common(1)
    if width < 2 or count < _SAME * len(rows):
        return []
    rows = [row for row in rows if len(row) == width]
    before = [index for index in range(min(_BEFORE, width - 1)) if all(_NUMBER.fullmatch(row[index]) for row in rows)]
    column = before[-1] + 1 if before else 0
    return [row[column] for row in rows]
