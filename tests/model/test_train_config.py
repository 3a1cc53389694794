"""A value that cannot be is refused by its name before work begins."""

import pytest

from model.config import ModelConfig, ObjectiveConfig, OptimizerConfig, TrainConfig
from pipeline.common.errors import ConfigError

TINY = {"name": "t", "layers": 1, "hidden": 8, "heads": 2, "feed_forward": 16}


@pytest.mark.parametrize(
    ("schema", "good", "change"),
    [
        (ModelConfig, TINY, {"heads": 0}),
        (ModelConfig, TINY, {"heads": 3}),
        (ModelConfig, TINY, {"dropout": 1.0}),
        (ModelConfig, TINY, {"layer_norm_epsilon": 0.0}),
        (ModelConfig, TINY, {"global_every": 0}),
        (ModelConfig, TINY, {"rotary_global": 0.0}),
        (ObjectiveConfig, {"name": "o"}, {"random_token_share": 0.3}),
        (OptimizerConfig, {"name": "adamw"}, {"epsilon": -1e-6}),
        (OptimizerConfig, {"name": "adamw"}, {"weight_decay": -0.01}),
        (TrainConfig, {}, {"evaluate_samples": 0}),
        (TrainConfig, {}, {"threads": 0}),
        (TrainConfig, {}, {"keep_every": 0}),
        (TrainConfig, {}, {"peak_tflops": 0.0}),
        (TrainConfig, {}, {"start_optimizer": True}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_value_that_cannot_be_is_named(
    schema: type, good: dict[str, object], change: dict[str, object]
) -> None:
    schema(**good)
    ((key, value),) = change.items()
    with pytest.raises(ConfigError, match=rf"{key}={str(value).lower()}\b"):
        schema(**{**good, **change})


def test_pairs_are_refused_to_a_model_that_judges_none() -> None:
    modern = ModelConfig(**TINY, architecture="modernbert")
    with pytest.raises(ConfigError, match=r"objective.next_sentence=true.*objective=modern"):
        TrainConfig(model=modern, objective=ObjectiveConfig(name="nsp"))
    TrainConfig(model=modern, objective=ObjectiveConfig(name="mlm", next_sentence=False))
