"""Files of minimal pairs as others write them: what is a pair is read, the rest is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.common.errors import InputError
from pipeline.evaluation import examples
from pipeline.evaluation.task_types import minimal_pairs
from tests.refusals import refused


def test_a_column_without_a_name_is_no_column_of_the_task(tmp_path: Path) -> None:
    """As pandas writes its index."""
    (tmp_path / "data.tsv").write_text("\tsen\twrong_sen\tphenomenon\n7\ta\tb\tSV\n")
    pairs = minimal_pairs.read_pairs(str(tmp_path), examples.task_of("multiblimp"))
    assert (pairs.contexts, pairs.groups) == ([("", "")], {"SV": ("", "")})


ROW = {"sentence_good": "a", "sentence_bad": "b", "UID": "x", "linguistics_term": "t"}


@pytest.mark.parametrize(
    ("rows", "good", "faults"),
    [
        ([ROW | {"note": "n"}, ROW], ["a", "a"], []),
        ([{"sentence_good": "a"}, ROW], ["a"], ["row 1: 'sentence_bad' is missing"]),
        ([ROW, ROW | {"sentence_good": 5}], ["a"], ["row 2: 'sentence_good' is not text"]),
        ([ROW | {"sentence_bad": ["b"]}, ROW], ["a"], ["row 1: 'sentence_bad' is not text"]),
        ([ROW, ROW | {"sentence_good": None}], ["a"], ["line 2: a sentence is empty"]),
        ([ROW, ROW | {"sentence_bad": "\u200b"}], ["a"], ["line 2: a sentence is empty"]),
        ([ROW | {"sentence_good": "c \ud83d"}], ["c"], []),
    ],
)
def test_only_rows_without_two_sentences_are_left_out(
    tmp_path: Path, rows: list[dict[str, Any]], good: list[str], faults: list[str]
) -> None:
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pairs = minimal_pairs.read_pairs(str(tmp_path), examples.task_of("blimp"))
    assert (pairs.good, pairs.malformed) == (good, [f"{tmp_path}/p.jsonl, {fault}" for fault in faults])


@pytest.mark.parametrize("end", ["\r\n\r\n", "\n \n", "\n\n\n", ""])
def test_blank_lines_are_no_rows(tmp_path: Path, end: str) -> None:
    row = json.dumps(ROW)
    (tmp_path / "p.jsonl").write_bytes(f"\ufeff{row}\r\n\r\n{row}{end}".encode())
    pairs = minimal_pairs.read_pairs(str(tmp_path), examples.task_of("blimp"))
    assert pairs.good == ["a", "a"]
    (tmp_path / "p.jsonl").write_text(f"{row}\n\n{{")
    with refused(InputError, line=3):
        minimal_pairs.read_pairs(str(tmp_path), examples.task_of("blimp"))
