"""The search over settings: rows that are there are kept, and are a table."""

import json
from pathlib import Path

import pytest

from benchmarks.scores import budget
from model.config import TrainConfig
from pipeline.cli import composing, conf_files


def row(name: str, blimp: float) -> dict[str, object]:
    return {
        "name": name,
        "settings": {},
        "steps": 10,
        "batch": 16,
        "tokens": 1000,
        "blimp": blimp,
        "validation": {"masked_lm_accuracy": 0.125},
        "interval": [0.5, 0.6],
        "core_seconds": 360,
    }


def test_the_last_row_of_a_name_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row("base", 0.5), row("batch 64", 0.56), row("base", 0.55)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    monkeypatch.setattr("sys.argv", ["budget", "--out", str(tmp_path), "--show"])
    budget.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "| base | 10 of 16 | 1,000 | 360 | 0.125 | 55.0 | 50.0 to 60.0 | 50 |",
        "| batch 64 | 10 of 16 | 1,000 | 360 | 0.125 | 56.0 | 50.0 to 60.0 | 60 |",
    ]


@pytest.mark.parametrize("name", budget.ROWS)
def test_the_settings_of_every_row_are_keys_of_training(name: str, tmp_path: Path) -> None:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    composing.register("train", TrainConfig)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_files.CONF), version_base="1.3"):
        for settings in budget.phases(name):
            words = [*budget.training_of(["model=tiny", *settings]), f"out={tmp_path}/train"]
            config = composing.validate(compose("train", [*words, f"workdir={tmp_path}"]), TrainConfig)
            assert config.batch_size == budget.batch_of(settings)


def test_a_row_of_two_lengths_reads_other_shards_in_its_second_half() -> None:
    first, second = budget.phases("length 64, then 128")
    assert budget.of_stage("prepare", first) == {}
    assert budget.of_stage("prepare", second) == {"sequence_length": "128"}
    assert [budget.batch_of(words) for words in (first, second)] == [16, 8]
