"""What the command says where a task or a model is not named, and the grids that it knows."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from pipeline.cli import composing, conf_files
from pipeline.config import EvaluateConfig
from pipeline.evaluation import grid_search
from tests.pipeline.test_evaluate import command, evaluate_own


@pytest.mark.parametrize(("protocol", "points"), [("paper", 40), ("small", 20), ("fixed", 5)])
def test_the_published_protocols_are_grids(protocol, points):
    composing.register("evaluate", EvaluateConfig)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_files.CONF), version_base="1.3"):
        composed = compose("evaluate", ["+task=rte", f"+protocol={protocol}", "baseline=false"])
    config = composing.validate(composed, EvaluateConfig)
    assert len(grid_search.grid_of(config)) == points


def test_without_a_task_the_command_lists_them():
    done = command()
    assert done.returncode == 2
    assert ": ax, babylm_boolq, " in done.stderr


def test_a_task_of_ones_own_asks_which_model(tmp_path: Path) -> None:
    words = [f"data={tmp_path}", f"out={tmp_path / 'out'}"]
    done = evaluate_own(*words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: pretrained: ")
    done = evaluate_own(*words, f"workdir={tmp_path}")
    assert f"{tmp_path}/convert: " in done.stderr
