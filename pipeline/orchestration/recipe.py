"""The stages of a recipe, and the overrides that each of them gets from a run."""

import re
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from pipeline.cli import conf_files
from pipeline.cli.overrides import SEARCH_PATH, normalized, quoted, search_path
from pipeline.common.errors import ConfigError
from pipeline.common.formatting import flatten
from pipeline.config import TASK_KINDS, RunConfig
from pipeline.stages.registry import STAGES

# A key of a stage among the words of a run: `train.steps=9`, `+train-512.deepspeed.KEY=9`.
STAGE_KEY = re.compile(rf"([+~]*)((?:{'|'.join(STAGES)})(?:-[\w-]+)?)\.")
SAMPLE_TASK = "sample_"
OF_SCHEDULE = ("schedule.first_step", "schedule.total_steps")


def as_list(value: Any) -> list[Any]:
    """Return a list unchanged, and any other value as a list of one."""
    return value if isinstance(value, list) else [value]


def tasks_of(kind: str, settings: dict[str, Any], own: list[Path]) -> list[Any]:
    """Take the tasks out of the settings of a stage; one that scores checkpoints trains none."""
    tasks = as_list(settings.pop("task", None))
    if kind == "evaluate" and settings.get("checkpoints"):
        return [task for task in tasks if not trains(task, own)]
    return tasks


def stages(config: RunConfig, chosen: list[str]) -> list[tuple[str, str, list[str]]]:
    """Return (name, type, overrides) of every stage of the recipe, in recipe order.

    `chosen` are the overrides of the run's command line; those of `corpus` and `model.KEY` are
    passed to the stages that have these keys, in place of what the recipe sets. Those of one stage
    are passed to it as its own command would have them, so that a choice and its keys both count.

    Raises:
        ConfigError: a stage has an unknown type, or settings name a stage missing from the recipe.
    """
    check_stages(config, chosen)
    found: list[tuple[str, str, list[str]]] = []
    recipe = config.recipe.stages | in_steps(config)
    folders = search_path(chosen)
    asked = [(settings or {}).get("task") or [] for settings in recipe.values()]
    sizes = {_name(override) for override in chosen if _about(override, "model")} - {"model"}
    samples = any(task.startswith(SAMPLE_TASK) for tasks in asked for task in as_list(tasks))
    for name, settings in recipe.items():
        kind = type_of(name)
        if kind == "download" and (config.corpus.path is not None or not config.corpus.files):
            continue
        if kind == "tasks" and not samples:
            continue
        settings = dict(flatten(settings or {}))
        if kind == "train":
            settings = {key: settings[key] for key in settings if key not in sizes}
        typed = normalized(own_words(name, chosen), kind, STAGES[kind].schema)
        theirs = values_of(typed)
        settings |= theirs
        for task in tasks_of(kind, settings, folders):
            own = f"{name}-{task}" if task else name
            overrides = passed_on(config, chosen, own, kind)
            if task:
                data = quoted(task_data(config, task, folders))
                overrides = [f"+task={task}", *overrides, f"data={data}"]
            if kind == "report":
                made = [f"{config.workdir}/{other}" for other, _, _ in found]
                overrides.append(f"stages={quoted(made)}")
            if "seed" in STAGES[kind].schema.__dataclass_fields__ and "seed" not in settings:
                overrides.append(f"seed={config.seed}")
            if kind == "prepare" and config.cores and "runner" not in settings:
                overrides.append(f"runner.workers={config.cores}")
            ours = settings.keys() - theirs.keys()
            overrides += [f"{key}={quoted(settings[key])}" for key in settings if key in ours]
            overrides += [word for word in typed if _name(word) != "task"]
            found.append((own, kind, overrides))
    return found


def in_steps(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Return the settings of the recipe's trainings if they share `steps` as its own.

    The phases of one schedule still follow each other.

    Raises:
        ConfigError: `steps` are too few, or the recipe does not say how many a training has.
    """
    if config.steps is None:
        return {}
    trainings = {
        name: dict(flatten(settings or {}))
        for name, settings in config.recipe.stages.items()
        if type_of(name) == "train"
    }
    if len(trainings) == 1:
        return {name: settings | {"steps": config.steps} for name, settings in trainings.items()}
    for name in (name for name, settings in trainings.items() if not settings.get("steps")):
        raise ConfigError(f"recipe.stages.{name} has none to change; set {name}.steps", "steps")
    factor = config.steps / sum(settings["steps"] for settings in trainings.values())
    done = 0
    for name, settings in trainings.items():
        first, done = done, done + settings["steps"]
        settings["steps"] = round(factor * done) - round(factor * first)
        settings |= {key: round(factor * settings[key]) for key in OF_SCHEDULE if key in settings}
        if not settings["steps"]:
            raise ConfigError(f"too few, {name} would have none", "steps", config.steps)
    return trainings


def own_words(name: str, chosen: list[str]) -> list[str]:
    """Return a stage's overrides among those of its run, without its name: `steps=9`."""
    found = ((STAGE_KEY.match(word), word) for word in chosen)
    return [m[1] + word[m.end() :] for m, word in found if m is not None and m[2] == name]


def values_of(overrides: list[str]) -> dict[str, Any]:
    """Return what overrides set, by dotted key; the last of a key counts."""
    parsed = OverridesParser.create().parse_overrides(overrides)
    return dict(flatten({each.key_or_group: each.value() for each in parsed}))


def check_stages(config: RunConfig, chosen: list[str]) -> None:
    """Raise ConfigError for a stage of unknown type, or settings of a stage that is not there."""
    for name in config.recipe.stages:
        if type_of(name) not in STAGES:
            raise ConfigError(f"no such stage; choose one of {', '.join(STAGES)}", f"recipe.stages.{name}")
    named = {found[2] for word in chosen if (found := STAGE_KEY.match(word))}
    unknown = sorted(named - config.recipe.stages.keys())
    if unknown:
        raise ConfigError(
            f"no such stage in recipe {config.recipe.name}; choose one of {', '.join(config.recipe.stages)}", unknown[0]
        )


def type_of(stage: str) -> str:
    """Return the type of a recipe's stage, such as `train` of `train-512`."""
    return stage.partition("-")[0]


def passed_on(config: RunConfig, chosen: list[str], name: str, kind: str) -> list[str]:
    """Return what a stage takes over from the run: folders, and `chosen` of groups that it has."""
    overrides = [f"workdir={quoted(config.workdir)}", f"out={quoted(f'{config.workdir}/{name}')}"]
    if config.mirror is not None:
        overrides.append(f"mirror={quoted(config.mirror)}")
    if "corpus" in STAGES[kind].schema.__dataclass_fields__:
        overrides = [o for o in chosen if _about(o, "corpus")] + overrides
    overrides += [o for o in chosen if _about(o, SEARCH_PATH)]
    if kind == "train":
        overrides += [o for o in chosen if _about(o, "model") and "model=" not in o]
    return overrides


def _about(override: str, group: str) -> bool:
    """Return whether an override selects a file of a config group or sets a key of the group."""
    name = _name(override)
    return name == group or name.startswith(f"{group}.")


def _name(override: str) -> str:
    """Return the key or the group that an override is about."""
    return override.lstrip("+~").partition("=")[0].partition("@")[0]


def trains(task: str, own: list[Path]) -> bool:
    """Return whether models are fine-tuned for a task; also for an unknown one."""
    files = [folder / "task" / f"{task}.yaml" for folder in (*own, conf_files.CONF)]
    text = next((file.read_text(encoding="utf-8") for file in files if file.is_file()), "{}")
    kind = TASK_KINDS.get(yaml.safe_load(text).get("kind"))
    return kind is None or kind.trains


def task_data(config: RunConfig, task: str, own: list[Path]) -> str:
    """Return the folder that holds the files of a task; `own` are more folders of YAML files.

    Raises:
        ConfigError: the task is unknown, or is not a sample task and `glue` is not set.
    """
    known = conf_files.choices("task", *own)
    if task not in known:
        raise conf_files.no_such("task", task, known)
    if task.startswith(SAMPLE_TASK):
        return f"{config.workdir}/tasks"
    if config.glue is None:
        raise ConfigError("its files are required; add glue=FOLDER, the folder of the GLUE files", "task", task)
    return config.glue
