"""`trace=PATTERN` says what became of each document, and changes nothing else."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import prepare, shards
from pipeline.beam import exchange
from pipeline.beam.trace import FILE
from pipeline.common.errors import InputError
from pipeline.config import CorpusConfig, FiltersConfig, PrepareConfig, RunnerConfig
from pipeline.stages import stage
from pipeline.stages.fingerprints import fingerprint
from pipeline.tokenization.wordpiece import SPECIAL, build

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
    (folder / "vocab").mkdir()
    words = [*WORDS, *(f"only{number}" for number in range(COUNT)), "."]
    (folder / "vocab/tokenizer.json").write_text(build([*SPECIAL, *words], lowercase=True))
    (folder / "evaluation.jsonl").write_text('{"text": "said that the river was old"}\n')
    return folder


def config(world: Path, out: Path, **more: Any) -> PrepareConfig:
    filtering = FILTERS | {"decontaminate": [str(world / "evaluation.jsonl")]}
    settings = {
        "corpus": CorpusConfig(name="c", reader="jsonl", path=str(world / "corpus.jsonl")),
        "runner": RunnerConfig(),
        "source": "",
        "vocab": str(world / "vocab"),
        "out": str(out),
        "filters": FiltersConfig(**filtering),
        "split_bytes": 10**6,
        "shard_bytes": 15_000,
        "validation_share": 0.2,
        "sequence_length": 64,
    }
    return PrepareConfig(**(settings | more))


def made(world: Path, out: Path, **more: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The figures of `prepare`, and its files."""
    out.mkdir()
    figures = prepare.make(config(world, out, **more), out).figures
    return figures, {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def records(files: dict[str, bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files[FILE].splitlines()]


def test_every_outcome_is_said_with_its_reason(world: Path, tmp_path: Path) -> None:
    figures, files = made(world, tmp_path / "out", trace="*")
    found = records(files)
    name = str(world / "corpus.jsonl")
    assert [each["id"] for each in found] == [f"{name} line {k + 1}" for k in range(len(ROWS))]
    outcomes = Counter(each["outcome"] for each in found)
    assert outcomes == {k: v for k, v in figures["documents"].items() if k != "read"}
    reasons = Counter(each["reason"] for each in found if "reason" in each)
    assert reasons == figures["filtered"]
    assert set(reasons) == {"long", "non-letters", "banned", "contaminated", "near duplicate"}
    assert (found[COUNT]["outcome"], found[COUNT + 1]["outcome"]) == ("empty", "short")
    same, near = found[COUNT + 2], [e for e in found if e.get("reason") == "near duplicate"]
    assert (same["outcome"], same["duplicate_of"]) == ("duplicate", found[3]["id"])
    pair = {found[7]["id"], found[-1]["id"]}
    assert [{each["id"], each["near_duplicate_of"]} for each in near] == [pair]
    for each in found:
        low, high = each["bytes"]
        assert each["file"] == name
        assert 0 <= low < high <= Path(name).stat().st_size


def test_a_run_that_leaves_no_document_keeps_its_trace(world: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"text": own(5)}) + "\n")
    corpus = CorpusConfig(name="c", reader="jsonl", path=str(tmp_path / "corpus.jsonl"))
    filtering = FiltersConfig(banned=["only5"])
    settings = config(world, tmp_path / "out", corpus=corpus, filters=filtering, trace="*")
    with pytest.raises(InputError, match="1 banned") as raised:
        stage.run("prepare", settings, prepare.make)
    kept = tmp_path / "out.trace.jsonl"
    assert str(kept) in str(raised.value)
    assert raised.value.key == "corpus.path"
    assert [json.loads(line)["reason"] for line in kept.read_text().splitlines()] == ["banned"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
def test_the_rows_are_those_that_hold_text_of_the_document(world: Path, tmp_path: Path, pairs: str) -> None:
    _, files = made(world, tmp_path / "out", trace="*", pairs=pairs, duplicates=2)
    first = len(SPECIAL) + len(WORDS)  # the id of "only0"
    expected: set[tuple[int, str, int]] = set()
    for split in ("train", "validation"):
        for shard in shards.open_folder(tmp_path / "out", split):
            for row in range(shard.rows):
                tokens = np.asarray(shard.values[shard.offsets[row] : shard.offsets[row + 1]])
                for token in set(tokens.tolist()) & set(range(first, first + COUNT)):
                    expected.add((token - first, Path(shard.path).name, row))
    found = list(zip([*range(COUNT), 7], (lines := records(files))[:COUNT] + lines[-1:], strict=True))
    told = {(n, each["shard"], row) for n, each in found for row in each.get("rows", [])}
    assert expected <= told
    assert len(told - expected) < 0.05 * len(told), "rows of a word that other texts have too"
    assert len(expected) > 2 * COUNT


def test_a_trace_changes_neither_bytes_nor_fingerprint(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {"trace": "*", "split_bytes": 3000}
    _, plain = made(world, tmp_path / "plain")
    _, all_of_them = made(world, tmp_path / "all", **many)
    _, two = made(world, tmp_path / "two", runner=RunnerConfig(workers=2), **many)
    monkeypatch.setattr(exchange, "DIRECT", 1)  # merge splits between the phases
    _, merged = made(world, tmp_path / "merged", **many)
    assert FILE not in plain
    assert all_of_them == two == merged
    assert all_of_them == plain | {FILE: all_of_them[FILE]}
    settings = (config(world, tmp_path / "x", **more) for more in ({}, {"trace": "*"}))
    assert len({fingerprint("prepare", each)[0] for each in settings}) == 1


def test_documents_are_chosen_by_pattern_or_list(world: Path, tmp_path: Path) -> None:
    name = str(world / "corpus.jsonl")
    (tmp_path / "ids").write_text(f"{name} line 2\n\n{name} line 43\n")
    _, files = made(world, tmp_path / "out", trace="* line 1?", trace_file=str(tmp_path / "ids"))
    lines = [int(each["id"].rpartition(" ")[2]) for each in records(files)]
    assert lines == [2, *range(10, 20), 43]


def test_a_trace_of_nothing_is_a_warning(world: Path, tmp_path: Path) -> None:
    figures, files = made(world, tmp_path / "out", trace="nowhere")
    assert files[FILE] == b""
    assert any("trace" in warning for warning in figures["warnings"])
    with pytest.raises(InputError) as caught:
        made(world, tmp_path / "other", trace_file=str(tmp_path / "missing"))
    assert caught.value.key == "trace_file"
