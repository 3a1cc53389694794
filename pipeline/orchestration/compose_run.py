"""A run composed once: the words of its command line as Hydra takes them, and the configuration of every stage.

A stage is in the package `stages.NAME`: `train.steps=9` is `stages.train.steps=9` for Hydra, and
`train.optimizer=lamb` chooses `optimizer@stages.train.optimizer=lamb`.
"""

import copy
import difflib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, get_origin

from omegaconf import DictConfig, OmegaConf, open_dict

from pipeline.cli import composing, conf_files, entry_point, help_text, overrides
from pipeline.cli.overrides import Folders, Words
from pipeline.common import cores
from pipeline.common.schema import check, without_effect
from pipeline.config import TASK_KINDS, EvaluateConfig, RunConfig, StageConfig
from pipeline.errors import ConfigError, InputError, UserError, rendered, shown
from pipeline.orchestration import planner, stage_keys
from pipeline.stages.registry import STAGES, type_of

# A key of a stage among the words of a run: `train.steps=9`, `+train-512.deepspeed.KEY=9`.
STAGE_KEY = re.compile(rf"([+~]*)((?:{'|'.join(STAGES)})(?:-[\w-]+)?)\.(.+)")
UNCOMMENTED = re.compile(r"""(?:'[^']*'|"[^"]*"|(?<=\S)#|[^#])*""")  # of a line, where quotes may hold a #
CHOSEN = re.compile(r"[\w./-]+")  # the value of a choice
OPENED = re.compile(r"runner\.options\.|task\.")  # keys that need not be there
OF_A_RUN = {  # what one stage cannot have apart from the others
    "corpus": "all stages read one corpus; leave the stage out",
    "workdir": "all stages have one folder; leave the stage out",
    "mirror": "all stages have one; leave the stage out",
    "out": "is where other stages read; set workdir, or run the stage by its own command",
    "force": "is a key of the run: --force {0}",
}
SAMPLE_TASK = "sample_"
CONFIG_DIR = ("--config-dir", "-cd")
ALIKE = 0.85  # of a misspelt key of a run, which is not that of a stage; `steps` is no `stages`


def own_name(*, _parent_: DictConfig) -> str:
    """Return the key of the node that has the interpolation `${own_name:}`, the stage's name."""
    return str(_parent_._key())


def phase(first: int, last: int, total: int, *, _root_: DictConfig) -> int:
    """Return the steps from `first` to `last` of a recipe's `total`, where the run has others."""
    factor = _root_.steps / total
    return int(round(factor * last) - round(factor * first))


for resolver in (own_name, phase):
    OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)


def expand(argv: Words) -> Words:
    """Expand the words of a command line for Hydra.

    `--force STAGE` becomes `force=[STAGE]`, `@FILE` its lines.
    `--config-dir FOLDER` becomes an override, so that every stage finds the YAML files there.
    """
    expanded: Words = []
    forced: Words = []
    words = iter(argv)
    for word in words:
        option, equals, value = word.partition("=")
        if option == "--force":
            forced.append(value if equals else next(words, ""))
        elif word.startswith("force=["):
            forced += re.findall(r"[^][, '\"]+", value)
        elif option in CONFIG_DIR:
            expanded.append(own_folder(value if equals else next(words, "")))
        elif word.startswith("@"):
            expanded += lines_of(word[1:])
        else:
            expanded.append(word)
    overrides.check_overrides(expanded, RunConfig)
    for word in expanded:
        check_name(word, expanded)
    for name in forced:
        if not re.fullmatch(r"[\w-]+", name) or name.startswith("-"):
            raise ConfigError(f"--force {name}".rstrip() + ": a stage is required, as in --force train")
    return [*expanded, f"force=[{','.join(forced)}]"] if forced else expanded


def own_folder(path: str) -> str:
    """Return the override that makes Hydra search a folder of YAML files too."""
    folder = Path(path).expanduser()
    if not path or not folder.is_dir():
        raise ConfigError(f"--config-dir {path}".rstrip() + ": not a folder; name that of your YAML files")
    return f"{overrides.SEARCH_PATH}={overrides.quote([f'file://{folder.absolute()}'])}"


def lines_of(path: str) -> Words:
    """Return the overrides in a file, one per line, without comments and empty lines."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be read ({reason}); expected one override per line", path=f"@{path}") from error
    lines = (UNCOMMENTED.match(line) for line in text.splitlines())
    return [match[0].strip() for match in lines if match and match[0].strip()]


def check_name(override: str, words: Words) -> None:
    """Raise ConfigError if a key is that of a stage, or begins with neither a stage nor a key of a run.

    `words` are the whole command line, which may name a recipe.
    """
    key, equals, value = override.lstrip("+~").partition("=")
    name, dot, rest = key.partition(".")
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w.-]+)?", key):
        return
    check(name != "stages" or not dot, f"{override}: no such key; did you mean {rest}={value}?")
    named = key != "force" or value.startswith("[")
    check(named, f"{override}: stages are required, as in --force train")
    if name in stage_keys.OWN or STAGE_KEY.match(override):
        return
    if near := difflib.get_close_matches(name, stage_keys.OWN, n=1, cutoff=ALIKE):
        listed = get_origin(overrides.type_of(RunConfig, near[0])) is list and value[:1] != "["
        raise ConfigError(
            f"{override}: no such key; did you mean {near[0]}{dot}{rest}={f'[{value}]' if listed else value}?"
        )
    recipe = recipe_stages(words) or STAGES

    def stages_with(ours: str) -> list[str]:
        return [one for one in recipe if stage_keys.belongs_to_stage(type_of(one), ours)]

    if stages := stages_with(key):
        others = f" (stages with this key: {', '.join(stages)})" if stages[1:] else ""
        meant = f"{stages[0]}.{key}={value}"
        raise ConfigError(f"{override}: is a key of a stage; did you mean {meant}?{others}")

    def in_run(ours: str) -> str | None:
        keys = [ours] if overrides.type_of(RunConfig, ours) else [f"{one}.{ours}" for one in stages_with(ours)]
        return next(iter(keys), None)

    if cure := overrides.other_word(key, in_run, ""):
        raise ConfigError(f"{override}: no such key; {rendered(cure, lambda ours: in_run(ours) or ours)}")
    if dot:
        near = difflib.get_close_matches(name, [*STAGES, *stage_keys.OWN], n=1)
        meant = f"did you mean {near[0]}.{rest}? " if near else ""
        raise ConfigError(f"{override}: no such stage; {meant}choose one of {', '.join(STAGES)}")


def start(words: Words, task: Callable[[RunConfig], Any]) -> NoReturn:
    """Compose a run of the words of a command line, and call `task` with it; see `entry_point.run`."""
    entry_point.run("run", RunConfig, task, words, read=parse_run_argv)


def place_in_package(word: str, folders: Folders) -> str:
    """Return an override of a stage in the package of that stage, and any other unchanged.

    Raises:
        ConfigError: it would change for one stage alone what all share.
    """
    match = STAGE_KEY.fullmatch(word)
    if match is None:
        return word
    sign, name, rest = match.groups()
    key, _, value = rest.partition("=")
    kind = type_of(name)
    if cure := OF_A_RUN.get(key.partition(".")[0]):
        raise ConfigError(cure.format(name), f"{name}.{key}", value)
    if kind == "evaluate" and key == "task":
        return f"{sign}stages.{name}.tasks={value if value[:1] == '[' else f'[{value}]'}"
    allowed = conf_files.choices(key, *folders) if key in STAGES[kind].schema.__dataclass_fields__ else []
    if allowed and CHOSEN.fullmatch(chosen := value.strip("'\"")):
        if chosen not in allowed:
            raise conf_files.unknown_choice(key, value, allowed).but(key=f"{name}.{key}")
        return f"{'' if key in overrides.default_groups(kind) else '+'}{key}@stages.{name}.{key}={value}"
    rest = overrides.quote_texts(rest, STAGES[kind].schema)  # the rest is done for every word
    added = kind == "evaluate" or OPENED.match(key) or sign == "+"
    return f"{'++' if added and sign != '~' else sign}stages.{name}.{rest}"


def compose_recipe(words: Words, folders: Folders) -> DictConfig | None:
    """Return what a command line composes, evaluations as templates; None if an option of Hydra ran.

    Raises:
        ConfigError, HydraException, OmegaConfBaseException: a mistake on it or in a YAML file.
    """
    for stage in STAGES.values():
        composing.register(stage.name, stage.schema)
    config = composing.compose("run", RunConfig, [place_in_package(word, folders) for word in words])
    if config is not None:
        set_in_trainings(config, words)
    return config


def parse_run_argv(name: str, schema: type, argv: Words, asked: bool) -> Any:
    """Return the configuration of a command line, with those of its stages in their order.

    None if help was `asked` for, or an option of Hydra ran.

    Raises:
        ConfigError: a mistake on the command line or in a YAML file.
    """
    words = entered = expand(argv)
    folders = overrides.search_path(words)
    if not asked:
        words = planner.add_plan(words, lambda others: parse_run_argv(name, schema, others, asked))
    try:
        config = compose_recipe(words, folders)
        if config is None:
            return None
        root = copy.deepcopy(config)
        root.stages = {}
        if asked:
            help_text.print_help(name, schema, root)
            return None
        run = composing.validate(root, RunConfig)
    except composing.MISTAKES as error:
        check_stages(words)
        raise translate_error(error) from error
    config.cores = run.cores = run.cores or cores.available()
    bases = expand_evaluations(config, run, folders)
    run.stages = {
        stage: validate_stage(config, stage, base, composing.typed_keys(entered, base)) for stage, base in bases.items()
    }
    idle = unread(run, bases, composing.typed_keys(entered))
    composing.warn((*composing.find_repeated(argv), *without_effect(run), *idle))
    return run


def unread(run: RunConfig, bases: dict[str, str], typed: set[str]) -> Iterator[str]:
    """Yield a line for each key `typed` for stages that none of them reads, and for steps that one has of its own.

    What a recipe or a plan says is not typed.
    """
    idle = [(base, line) for stage, base in bases.items() for line in without_effect(run.stages[stage], f"{base}.")]
    keys = [line.partition("=")[0] for _, line in idle]  # evaluations share theirs
    typed_here = typed | {f"{base}.{key}" for base in bases.values() for key in typed if key.startswith("model.")}
    for (base, line), key in zip(idle, keys, strict=True):
        if keys.count(key) == [*bases.values()].count(base) and key in typed_here:
            yield line
    for stage, base in bases.items():
        if {"steps", f"{base}.steps"} <= typed:
            yield f"steps={run.steps} gives way to {base}.steps={shown(run.stages[stage].steps)}"


def translate_error(error: Exception, stage: str | None = None) -> UserError:
    """Return the error of a composition in the words of a run."""
    fault = composing.explain(error)
    fault = fault.but(key=fault.key and fault.key.removeprefix("stages."), problem=fault.problem.replace("stages.", ""))
    first, dot, _ = (fault.key or "").partition(".")
    stage = stage or (first if dot and type_of(first) in STAGES else None)
    return fault if stage is None else stage_keys.explain_in_plan(fault, stage)


def check_stages(words: Words) -> None:
    """Raise ConfigError if words set keys of a stage that the recipe has not."""
    names = recipe_stages(words)
    for word in words:
        match = STAGE_KEY.fullmatch(word)
        stage = match[2] if match and names else None
        check(stage is None or stage in names, f"no such stage in the recipe; choose one of {', '.join(names)}", stage)


def recipe_stages(words: Words) -> list[str]:
    """Return the names of the recipe's stages; none if it cannot be read."""
    keys = ("recipe", overrides.SEARCH_PATH)
    chosen = [word for word in words if word.lstrip("+").partition("=")[0] in keys or "@stages." in word]
    try:
        config = composing.compose("run", RunConfig, chosen)
        return [] if config is None else list(map(str, config.stages))
    except composing.MISTAKES:  # which is explained where the whole command line is read
        return []


def set_in_trainings(config: DictConfig, words: Words) -> None:
    """Set the keys `model.KEY` of the words in all trainings, except where one has its own."""
    keys = composing.typed_keys(words)
    for key in sorted(key for key in keys if key.startswith("model.")):
        for name in config.stages:
            if type_of(name) == "train" and f"{name}.{key}" not in keys:
                OmegaConf.update(config, f"stages.{name}.{key}", OmegaConf.select(config, key))


def expand_evaluations(config: DictConfig, run: RunConfig, folders: Folders) -> dict[str, str]:
    """Return the stages in their order, an evaluation for each task among them, with those of the recipe.

    A key of `evaluate-rte` is typed as one of `evaluate`, and one of `train` as its own.

    Raises:
        ConfigError: a task is unknown, or its files are not there.
    """
    check_kinds(config)
    tasks = [task for stage in config.stages.values() for task in stage.get("tasks") or []]
    names: dict[str, str] = {}
    for name in list(map(str, config.stages)):
        kind = type_of(name)
        if kind == "download" and (run.corpus.path is not None or not run.corpus.files):
            continue
        if kind == "tasks" and not any(task.startswith(SAMPLE_TASK) for task in tasks):
            continue
        names |= dict.fromkeys(add_evaluations(config, run, name, folders) if kind == "evaluate" else [name], name)
    names = dict(sorted(names.items(), key=lambda item: type_of(item[0]) == "report"))  # behind what a user adds
    for name in names:
        if type_of(name) == "report" and not config.stages[name].stages:
            config.stages[name].stages = [config.stages[other].out for other in names if type_of(other) != "report"]
    return names


def check_kinds(config: DictConfig) -> None:
    """Raise ConfigError for a stage that no file of `conf/stage` has made."""
    for name in map(str, config.stages):
        check(type_of(name) in STAGES, f"must be TYPE or TYPE-NAME, of {', '.join(STAGES)}", f"stages.{name}")
        if type_of(name) == "evaluate":  # a template, which no schema has checked yet
            composing.check_keys(config.stages[name], f"{name}.")
        if "workdir" not in config.stages[name]:
            chosen = [other for other in map(str, config.stages) if "workdir" in config.stages[other]]
            raise ConfigError(f"no such stage in recipe {config.recipe}; choose one of {', '.join(chosen)}", name)


def add_evaluations(config: DictConfig, run: RunConfig, name: str, folders: Folders) -> list[str]:
    """Add an evaluation to the stages for each task of a template; return their names.

    One that scores checkpoints trains none, so it has the tasks without training alone.

    Raises:
        ConfigError: a task is unknown, its files are not there, or a key is not of an evaluation.
    """
    template, names = copy.deepcopy(config.stages[name]), []
    with open_dict(template):
        tasks = template.pop("tasks")
    for task in tasks:
        content = task_of(task, folders)
        if template.get("checkpoints") and "checkpoints" not in TASK_KINDS[content.get("kind", "classification")].has:
            continue
        defaults = {"task": content, "data": task_data(run, task)}
        try:
            evaluation = OmegaConf.merge(OmegaConf.structured(EvaluateConfig), defaults, template)
            evaluation.own_tasks = composing.own_tasks(evaluation.task.also, folders)
        except composing.MISTAKES as error:
            raise translate_error(error, name) from error
        with open_dict(config.stages):
            config.stages[f"{name}-{task}"] = evaluation
        names.append(f"{name}-{task}")
    return names


def task_of(task: str, folders: Folders) -> DictConfig:
    """Return the settings of a task; `folders` are more ones of YAML files.

    Raises:
        ConfigError: the task is unknown.
    """
    allowed = conf_files.choices("task", *folders)
    if task not in allowed:
        raise conf_files.unknown_choice("task", task, allowed).but(key="tasks")
    files = [folder / "task" / f"{task}.yaml" for folder in (*folders, conf_files.CONF)]
    content = OmegaConf.load(next(file for file in files if file.is_file()))
    assert isinstance(content, DictConfig)
    return content


def task_data(run: RunConfig, task: str) -> str:
    """Return the folder that holds the files of a task.

    Raises:
        ConfigError: it is not a sample task, and `glue` is not set.
    """
    if task.startswith(SAMPLE_TASK):
        return f"{run.workdir}/tasks"
    if run.glue is None:
        raise ConfigError("its files are required; add glue=FOLDER, the folder of the GLUE files", "glue")
    return run.glue


def validate_stage(config: DictConfig, name: str, base: str, typed: set[str]) -> StageConfig:
    """Return the configuration of a stage; what is `typed` for the run counts for all stages.

    Raises:
        ConfigError: a value is missing, or a check fails.
    """
    schema = STAGES[type_of(name)].schema
    try:
        composing.warn(composing.settle(config.stages[name], schema, typed, f"{base}."))
        return composing.validate(config.stages[name], schema)
    except composing.MISTAKES as error:
        raise translate_error(error, base) from error
