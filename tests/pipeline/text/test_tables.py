"""TSV is read in the dialect in which it was written."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.text.tables import tsv_rows

QUOTED = [
    ["text", "label"],
    ['She said "yes".', "1"],
    ["two\nlines\tand a tab", "0"],
    ['"', "1"],
    ["plain", "0"],
    ["", "1"],
    ["long " * 30_000 + '"end"', "0"],
]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("rows", [QUOTED, [QUOTED[0], ["a", "1"]]])
def test_what_a_writer_of_csv_wrote_is_read_as_written(quoting: int, end: str, rows: list[list[str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter="\t", quoting=quoting, lineterminator=end).writerows(rows)
    assert [row for _, row in tsv_rows("a.tsv", file.getvalue())] == rows


@given(st.lists(st.text('a" ', min_size=1, max_size=6), min_size=1))
def test_one_field_that_no_writer_of_csv_wrote_makes_all_quotation_marks_text(texts: list[str]) -> None:
    rows = [[text, "1"] for text in [*texts, 'a "b" c']]
    found = tsv_rows("a.tsv", "\n".join(map("\t".join, rows)))
    assert found == list(enumerate(rows, 1))


@given(st.lists(st.tuples(*[st.text('a"', max_size=4)] * 2), min_size=1), st.sampled_from(["", "\r"]))
def test_rows_of_one_width_without_doubled_marks_are_lines(texts: list[tuple[str, str]], end: str) -> None:
    """As in GLUE, where a mark at the beginning of a field may be closed at the end of one rows later."""
    rows = [["index", "a", "b"], *([str(number), *pair] for number, pair in enumerate(texts))]
    if not any('""' in field for row in rows for field in row):
        found = tsv_rows("a.tsv", f"{end}\n".join(map("\t".join, rows)))
        assert [row for _, row in found] == rows


def test_a_quoted_sentence_alone_is_text() -> None:
    text = 'text\tlabel\n"I am."\t1\nShe is.\t0\n\n'
    assert [row[0] for _, row in tsv_rows("a.tsv", text)] == ["text", '"I am."', "She is."]
