"""Options that an engine does not know are refused before work begins."""

import pytest
from omegaconf import OmegaConf

from pipeline.beam import runners
from pipeline.cli import conf_files
from pipeline.config import RunnerConfig
from pipeline.errors import ConfigError
from pipeline.preparation.shuffle import SUBTASK_BYTES, ShuffleLayout
from tests.support.refusals import refused


@pytest.mark.parametrize("name", sorted(path.stem for path in (conf_files.CONF / "runner").iterdir()))
def test_the_options_of_every_engine_are_known(name):
    given = OmegaConf.load(conf_files.CONF / "runner" / f"{name}.yaml").get("options", {})
    runners.check_options(RunnerConfig(name=name, options=dict.fromkeys(given, "x")))


TYPED = "prism prism_locaton prism_location|flink job_endpiont job_endpoint|flink flink_mastr flink_master|"
TYPED += "spark enviroment_type environment_type|dataflow machine_typ machine_type|"
TYPED += "local direct_num_worker direct_num_workers"


@pytest.mark.parametrize(("name", "typed", "meant"), [row.split() for row in TYPED.split("|")])
def test_a_typo_in_an_option_is_refused_by_every_engine(name, typed, meant):
    with (
        refused(ConfigError, key=f"runner.options.{typed}") as caught,
        runners.start(RunnerConfig(name=name, options={typed: "x"}), ShuffleLayout.choose(1, 1, 1, 1)),
    ):
        pass
    assert f"did you mean runner.options.{meant}?" in str(caught.value)


@pytest.mark.parametrize(("text", "tasks"), [(1e6, 8), (1e9, 8), (1e11, 746), (1e13, 2048)])
def test_a_task_of_flink_is_small_however_large_the_corpus(text, tasks):
    splits = max(1, round(text / SUBTASK_BYTES * 2))
    layout = ShuffleLayout.choose(splits, splits, text, 2**21)
    given = RunnerConfig(name="flink", options={"parallelism": 8, "object_reuse": None})
    options = runners.in_turns(given, layout.subtasks).options
    assert options == {"parallelism": tasks, "execution_mode_for_batch": "BATCH_FORCED"}
    given.options["execution_mode_for_batch"] = "PIPELINED"  # an operator may know better
    options["execution_mode_for_batch"] = "PIPELINED"
    assert runners.in_turns(given, layout.subtasks).options == options


def test_an_option_that_only_a_job_service_knows_reaches_it():
    options = {"object_reuse": True}
    runners.check_options(RunnerConfig(name="flink", options=options))
    with pytest.raises(ConfigError):
        runners.check_options(RunnerConfig(name="local", options=options))
