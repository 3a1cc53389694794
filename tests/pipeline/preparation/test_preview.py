"""`dry_run=true` prints the layout that the job would use, and writes nothing."""

import re
from pathlib import Path

import pytest

from pipeline import prepare
from pipeline.config import PrepareConfig, RunnerConfig
from pipeline.preparation import estimate
from pipeline.preparation.shuffle import ShuffleLayout
from pipeline.readers import FileRange
from tests.support import preparing


def config(folder: Path, **more: object) -> PrepareConfig:
    return preparing.settings(
        "lines",
        folder / "a.txt",
        folder / "no-vocabulary-yet",
        out=str(folder / "out"),
        workdir=str(folder),
        dry_run=True,
        runner=RunnerConfig(**more),
    )


def row(said: str, name: str) -> str:
    found = re.search(rf"^  {name} +(.*)$", said, re.M)
    assert found is not None, said
    return found[1]


@pytest.mark.parametrize(("exchange", "carrier"), [("files", "files in out"), ("engine", "engine")])
def test_the_plan_is_printed_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], exchange: str, carrier: str
) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(f"Words {n}.\nMore of them." for n in range(9000)))
    there = set(tmp_path.iterdir())
    given = config(tmp_path, exchange=exchange)
    given.split_bytes = given.shard_bytes = 50_000
    prepare.execute(given)
    said = capsys.readouterr().out
    assert "estimate" in said
    assert row(said, "splits") == "5, read in 1 tasks"
    assert row(said, "shards") == "6, written in 1 tasks"
    assert carrier in row(said, "exchange")
    assert ("engine" in row(said, "disk")) == (exchange == "engine")
    assert set(tmp_path.iterdir()) == there


@pytest.mark.slow
def test_a_large_corpus_needs_no_more_memory_per_worker(tmp_path: Path) -> None:
    """1 TB and 10 TB, of which this machine has nothing to measure."""
    rows = {}
    for count in (15_000, 150_000):
        splits = [FileRange(str(tmp_path / "none"), k << 26, (k + 1) << 26) for k in range(count)]
        layout = ShuffleLayout.choose(count, count, count << 26, RunnerConfig().task_bytes)
        rows[count] = "\n".join(estimate.describe_plan(config(tmp_path), splits, layout))
    assert row(rows[15_000], "memory") == row(rows[150_000], "memory")
    assert "merged in" in row(rows[15_000], "exchange")
    hours = [int(re.findall(r" 1: (\d+) h", row(said, "time"))[0]) for said in rows.values()]
    assert 9 < hours[1] / hours[0] < 11
