"""A run over seeds of pre-training: what is shared, what is copied, and what it is called."""

from pathlib import Path

import pytest

from model.config import TrainConfig
from pipeline.config import ConvertConfig, EvaluateConfig, ReportConfig
from pipeline.errors import ConfigError
from pipeline.orchestration.run_document import StageRecord
from tests.support import runs
from tests.support.refusals import refused


def planned(workdir: Path, *words: str) -> dict[str, StageRecord]:
    return runs.planned("+corpus=sample", "tasks=[sample_next]", f"workdir={workdir}", *words)


def test_only_what_follows_training_is_copied(tmp_path: Path) -> None:
    alone = planned(tmp_path)
    nodes = planned(tmp_path, "seeds=[0,1,7]")
    names = ["vocab", "prepare", "tasks"]
    for end in ("", "-seed1", "-seed7"):
        names += [f"train{end}", f"convert{end}", f"evaluate-sample_next{end}"]
    assert list(nodes) == [*names, "report"]
    assert nodes["train-seed7"].needs == ("prepare", "vocab")
    assert nodes["convert-seed7"].needs[0] == "train-seed7"
    assert "convert-seed7" in nodes["evaluate-sample_next-seed7"].needs
    assert nodes["report"].needs == tuple(names)
    # The stages of the run's own seed are those of a run without seeds.
    for name, node in alone.items():
        if name != "report":
            assert nodes[name].fingerprint == node.fingerprint
            assert nodes[name].config == node.config


def test_a_copy_differs_in_seed_and_folders_alone(tmp_path: Path) -> None:
    nodes = planned(tmp_path, "seeds=[0,1]")
    own, other = nodes["train"].config, nodes["train-seed1"].config
    assert isinstance(own, TrainConfig)
    assert isinstance(other, TrainConfig)
    assert (other.seed, other.out) == (1, f"{tmp_path}/train-seed1")
    own.seed, own.out = other.seed, other.out
    assert other == own
    converted = nodes["convert-seed1"].config
    assert isinstance(converted, ConvertConfig)
    assert converted.train == f"{tmp_path}/train-seed1"
    first, second = (nodes[f"evaluate-sample_next{end}"].config for end in ("", "-seed1"))
    assert isinstance(first, EvaluateConfig)
    assert isinstance(second, EvaluateConfig)
    assert second.pretrained == f"{tmp_path}/convert-seed1"
    # The network with random weights is the same for all.
    assert (first.baseline, second.baseline) == (True, False)
    report = nodes["report"].config
    assert isinstance(report, ReportConfig)
    assert f"{tmp_path}/train-seed1" in report.stages


def test_the_seed_of_the_run_need_not_be_among_them(tmp_path: Path) -> None:
    nodes = planned(tmp_path, "seeds=[3,1]", "seed=2")
    trained = [name for name, node in nodes.items() if node.kind == "train"]
    assert trained == ["train-seed3", "train-seed1"]
    baselines = [n.config.baseline for n in nodes.values() if isinstance(n.config, EvaluateConfig)]
    assert baselines == [True, False]


def test_phases_and_checkpoints_of_a_recipe_follow_their_seed(tmp_path: Path) -> None:
    nodes = planned(tmp_path, "recipe=devlin", "seeds=[0,1]")
    second = nodes["train-512-seed1"].config
    assert isinstance(second, TrainConfig)
    assert (second.seed, second.start) == (1, f"{tmp_path}/train-seed1")
    nodes = planned(tmp_path, "recipe=babylm", "seeds=[0,1]")
    assert "train-seed1" in nodes["convert-checkpoints-seed1"].needs


@pytest.mark.parametrize(
    ("words", "key"), [(["seeds=[1,1]"], "seeds"), (["seeds=[0,1]", "train.seed=4"], "train.seed")]
)
def test_what_cannot_be_combined_is_refused(tmp_path: Path, words: list[str], key: str) -> None:
    with refused(ConfigError, key=key):
        planned(tmp_path, *words)
