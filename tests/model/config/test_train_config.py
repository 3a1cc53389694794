"""A value that cannot be is refused by its name before work begins."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
from omegaconf import OmegaConf

from model.config import PUBLISHED, SHAPE, DataConfig, ModelConfig, ObjectiveConfig, OptimizerConfig, TrainConfig
from model.train import rank_and_world
from pipeline.cli import conf_files
from pipeline.errors import ConfigError
from tests.support.refusals import refused
from tests.support.runs import configured

TINY = {"name": "t", "layers": 1, "hidden": 8, "heads": 2, "feed_forward": 16}


MASTER = "MASTER_ADDR=a MASTER_PORT=1"
RANKS = {"": None, f"RANK=1 WORLD_SIZE=2 {MASTER}": None, "RANK=1": "RANK", "RANK= WORLD_SIZE=1": "RANK"}
RANKS |= {f"RANK=2 WORLD_SIZE=2 {MASTER}": "RANK"}
RANKS |= dict.fromkeys(("WORLD_SIZE=two", "WORLD_SIZE=2", "WORLD_SIZE=2 RANK=0"), "WORLD_SIZE")


@pytest.mark.parametrize(("variables", "key"), RANKS.items())
def test_variables_of_a_launcher_fit_each_other(variables, key):
    with refused(ConfigError, key=key) if key else nullcontext():
        rank_and_world(dict(each.split("=") for each in variables.split()))


GOOD = {ModelConfig: TINY, ObjectiveConfig: {"name": "o"}, OptimizerConfig: {"name": "adamw"}, TrainConfig: {}}
WRONG = {
    ModelConfig: "heads=0 heads=3 dropout=1.0 layer_norm_epsilon=0.0 global_every=0 rotary_global=0.0",
    ObjectiveConfig: "random_token_share=0.3",
    OptimizerConfig: "epsilon=-1e-06 weight_decay=-0.01",
    TrainConfig: "evaluate_samples=0 threads=0 keep_every=0 start_optimizer=true",
}


@pytest.mark.parametrize(("schema", "word"), [(schema, word) for schema in WRONG for word in WRONG[schema].split()])
def test_a_value_that_cannot_be_is_named(schema, word):
    schema(**GOOD[schema])
    key, _, value = word.partition("=")
    with pytest.raises(ConfigError, match=rf"{word}\b"):
        schema(**GOOD[schema] | {key: json.loads(value)})


def test_pairs_are_refused_to_a_model_that_judges_none():
    modern = ModelConfig(**TINY, architecture="modernbert")
    with pytest.raises(ConfigError, match="objective=modern"):
        TrainConfig(model=modern, objective=ObjectiveConfig(name="nsp"))
    TrainConfig(model=modern, objective=ObjectiveConfig(name="mlm", next_sentence=False))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_sizes_are_those_of_the_choices(name):
    values = OmegaConf.load(conf_files.CONF / "model" / f"{name}.yaml")
    assert PUBLISHED[name] == tuple(values[key] for key in SHAPE)
    config = ModelConfig(**{str(key): value for key, value in values.items()})
    assert (config.size_name, replace(config, layers=6, hidden=384).size_name) == (name, "6 x 384")


def test_a_size_of_the_users_own_keeps_its_name():
    assert ModelConfig(**TINY).size_name == "t"


def compose_train(*words):
    """Return the configuration of a command line."""
    return configured("train", *words)


def test_without_a_start_the_size_is_that_of_base():
    assert compose_train() == compose_train("model=base")
    assert compose_train("model.layers=3") == compose_train("model=base", "model.layers=3")


def test_with_a_start_only_what_was_typed_is_set():
    size = compose_train("start=/nowhere", "model.layers=3").model
    assert (size.name, size.layers, size.hidden, size.positions) == ("auto", 3, 0, 0)
    assert compose_train("start=/nowhere", "model=tiny").model.hidden == 128


def test_a_small_model_has_a_rank_per_core_of_a_cpu():
    config = compose_train("model=tiny", "batch_size=32")
    assert [config.ranks(gpus=False, cores=cores) for cores in (1, 2, 64)] == [1, 2, 4]
    assert compose_train("model=base").ranks(gpus=False, cores=8) == 1
    assert compose_train("model=tiny", "processes=3").ranks(gpus=False, cores=8) == 3
    assert config.ranks(gpus=True, cores=8) is None, "the launcher counts the GPUs"


def test_there_is_a_weight_for_each_folder():
    with refused(ConfigError, key="data.weights"):
        DataConfig(dir="a", more=["b"], vocab="v", weights=[1.0])


IMPOSSIBLE = {"precision": "deepspeed=zero0 precision=bf16", "compute": "deepspeed=zero3 compute=compile"}
IMPOSSIBLE |= {"deepspeed.zero_optimization.stage": "deepspeed.zero_optimization.stage=7"}


@pytest.mark.parametrize(("key", "words"), IMPOSSIBLE.items())
def test_what_no_machine_trains_is_refused_before_any_stage(words, key):
    with refused(ConfigError, key=key):
        compose_train(*words.split())
