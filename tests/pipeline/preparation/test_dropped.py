"""`_dropped.feather` says which documents were left out, and why."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline import prepare
from pipeline.config import CorpusConfig, FiltersConfig, PrepareConfig, RunnerConfig
from pipeline.preparation import dropped, shuffle
from tests.support import preparing

COUNT = 40
WORDS = ["river", "mill", "road", "rain", "roof", "town", "letter", "supper", "clock", "hall"]


def own(number: int) -> str:
    """A text of several sentences; every other word is in no other text."""
    drawn = np.random.default_rng(number).choice(WORDS, (9, 4))
    return " ".join(" ".join(f"only{number} {word}" for word in words) + "." for words in drawn)


ROWS = [
    *map(own, range(COUNT)),
    "",
    "Hello.",
    own(3),
    own(4) * 30,
    "1 2 3 " * 40,
    own(5).replace("only5", "lorem ipsum"),
    own(6).replace(".", ".", 1) + " Said that the river was old and grey.",
    own(7) + " Also this.",
]
FILTERS = {
    "maximum_characters": 3000,
    "maximum_non_letters": 0.5,
    "banned": ["(?i)lorem"],
    "ngram": 6,
    "near_duplicates": 0.7,
    "shingle": 3,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with one document of each outcome, a vocabulary and an evaluation file."""
    folder = tmp_path_factory.mktemp("world")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in ROWS)
    (folder / "corpus.jsonl").write_text(lines)
    preparing.vocabulary(folder / "vocab", [*WORDS, *(f"only{number}" for number in range(COUNT)), "."])
    (folder / "evaluation.jsonl").write_text('{"text": "said that the river was old"}\n')
    return folder


def config(world: Path, out: Path, **more: Any) -> PrepareConfig:
    filtering = FILTERS | {"decontaminate": [str(world / "evaluation.jsonl")]}
    settings = {
        "out": str(out),
        "filters": FiltersConfig(**filtering),
        "split_bytes": 10**6,
        "shard_bytes": 15_000,
        "validation_share": 0.2,
        "sequence_length": 64,
    }
    return preparing.settings("jsonl", world / "corpus.jsonl", world / "vocab", **(settings | more))


def made(world: Path, out: Path, **more: Any) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The figures of `prepare`, and the rows of its file."""
    out.mkdir()
    figures = prepare.make(config(world, out, **more), out).figures
    with pa.ipc.open_file(str(out / dropped.FILE)) as file:
        about = json.loads(file.schema.metadata[b"dropped"])
        rows = file.read_all().to_pylist()
    left_out = figures["documents"]["read"] - figures["documents"]["written"]
    assert about == {"format": "dropped/1", "documents": left_out}
    assert figures["dropped"] == len(rows)
    return figures, rows


def test_every_outcome_is_said_with_its_reason(world: Path, tmp_path: Path) -> None:
    figures, rows = made(world, tmp_path / "out")
    outcomes = Counter(each["outcome"] for each in rows)
    assert outcomes == {k: v for k, v in figures["documents"].items() if k not in ("read", "written")}
    reasons = Counter(each["reason"] for each in rows if each["outcome"] == "filtered")
    assert reasons == figures["filtered"]
    assert set(reasons) == {"long", "non-letters", "banned", "contaminated", "near duplicate"}
    assert {each["reason"] for each in rows if each["outcome"] != "filtered"} == {""}
    name = str(world / "corpus.jsonl")
    found = {int(each["id"].removeprefix(f"{name} line ")): each["outcome"] for each in rows}
    assert {number: found[number] for number in range(COUNT + 1, COUNT + 4)} == {
        COUNT + 1: "empty",
        COUNT + 2: "short",
        COUNT + 3: "duplicate",
    }
    near = [each["id"] for each in rows if each["reason"] == "near duplicate"]
    assert near in ([f"{name} line 8"], [f"{name} line {len(ROWS)}"])


@pytest.mark.slow
def test_the_rows_do_not_depend_on_the_layout(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = {"corpus": CorpusConfig(name="c", reader="jsonl", path=str(world / "ids.jsonl"), options={"id": "name"})}
    lines = [json.dumps({"text": text, "name": f"\ud800 {k % 7}"}) + "\n" for k, text in enumerate(ROWS * 2)]
    (world / "ids.jsonl").write_text("".join(lines))
    expected = made(world, tmp_path / "one", **many)
    assert sum(expected[0]["documents"][outcome] for outcome in ("duplicate", "filtered")) > COUNT
    many["split_bytes"] = 3000
    small = {"runner": RunnerConfig(task_bytes=1), **many}
    assert made(world, tmp_path / "small", **small) == expected
    monkeypatch.setattr(shuffle, "DIRECT", 1)  # merge parts between the phases
    assert made(world, tmp_path / "merged", **small) == expected
    monkeypatch.setattr(dropped, "MOST", 9)
    figures, rows = made(world, tmp_path / "few", **small)
    assert len(rows) == 9
    assert figures == expected[0] | {"dropped": 9}
    assert all(row in expected[1] for row in rows)
    assert made(world, tmp_path / "few in one", **many | {"split_bytes": 10**6})[1] == rows
