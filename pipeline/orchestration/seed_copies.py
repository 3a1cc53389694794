"""Copies of the stages of a recipe, one per seed of pre-training.

Training, and all stages that read what it made, are copied; the others are shared. The stages of
the run's own `seed` keep their names, so that a finished run with one seed is reused; another
seed's are called train-seed1.
"""

import copy
import os
from collections.abc import Mapping

from model.config import TrainConfig
from pipeline.common.errors import ConfigError
from pipeline.common.schema import set_key
from pipeline.config import ConvertConfig, EvaluateConfig, ReportConfig, RunConfig, StageConfig
from pipeline.stages import fingerprints

Stages = dict[str, tuple[str, StageConfig]]


def with_copies(config: RunConfig, found: Stages, needs: Mapping[str, tuple[str, ...]]) -> Stages:
    """Return the stages with copies for `config.seeds`, all stages of one seed after another.

    Args:
        config: the run.
        found: type and configuration of each stage, by name.
        needs: names of the stages that each stage reads from.

    Raises:
        ConfigError: the seeds cannot be used in this run.
    """
    copied = after_training(found, needs)
    check(config, found, copied)
    reports = [name for name in copied if found[name][0] == "report"]
    made = {name: one for name, one in found.items() if name not in copied}
    for seed in config.seeds:
        for name in copied:
            if name not in reports:
                kind, settings = found[name]
                own = name_for(name, seed, config.seed)
                if own in made:
                    raise ConfigError(f"the recipe has a stage {own} already; rename it", "seeds", config.seeds)
                made[own] = (kind, with_seed(config, seed, settings, found, copied))
    for name in reports:
        kind, settings = found[name]
        assert isinstance(settings, ReportConfig)
        settings.stages = [one.out for other, (_, one) in made.items() if other not in reports]
        made[name] = (kind, settings)
    return made


def after_training(found: Stages, needs: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the stages that train, and those that read what they made, directly or not."""
    reached = {name for name, (kind, _) in found.items() if kind == "train"}
    for _ in found:
        reached |= {name for name in found if reached & set(needs[name])}
    return [name for name in found if name in reached]


def check(config: RunConfig, found: Stages, copied: list[str]) -> None:
    """Raise ConfigError if the run cannot have these seeds."""
    problem = None
    if not copied:
        problem = f"recipe {config.recipe} has no training; leave seeds out"
    elif len(set(config.seeds)) < len(config.seeds):
        problem = "contains a value twice"
    if problem is not None:
        raise ConfigError(f"{problem}", "seeds", config.seeds)
    for name in copied:
        settings = found[name][1]
        if isinstance(settings, TrainConfig) and settings.seed != config.seed:
            raise ConfigError(
                f"cannot be combined with seeds={config.seeds}; leave one of them out", f"{name}.seed", settings.seed
            )


def name_for(name: str, seed: int, first: int) -> str:
    """Return the name of a stage's copy; that of the run's own seed, `first`, is the stage's."""
    return name if seed == first else f"{name}-seed{seed}"


def with_seed(config: RunConfig, seed: int, settings: StageConfig, found: Stages, copied: list[str]) -> StageConfig:
    """Return a copy of a stage's configuration that reads and writes the folders of a seed."""
    made = copy.deepcopy(settings)
    made.out = name_for(settings.out, seed, config.seed)
    if isinstance(made, TrainConfig):
        made.seed = seed
    if isinstance(made, EvaluateConfig):
        # A model with random weights does not depend on the seed of pre-training.
        keeper = config.seed if config.seed in config.seeds else config.seeds[0]
        made.baseline = made.baseline and seed == keeper
    if isinstance(made, ConvertConfig) and made.push is not None:
        made.push = name_for(made.push, seed, config.seed)
    makers = {os.path.normpath(found[name][1].out): found[name][1].out for name in copied}
    for key, path in fingerprints.inputs(settings).items():
        if (out := fingerprints.producer_of(path, makers)) is not None:
            inside = os.path.normpath(path).removeprefix(os.path.normpath(out))
            set_key(made, key, name_for(out, seed, config.seed) + inside)
    return made
