"""The graph of a recipe: stages, their dependencies, and which of them are up to date.

Dependencies are inferred: a stage that reads a folder waits for the stage that makes it.
"""

import copy
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from model.config import TrainConfig
from pipeline.common.schema import set_key
from pipeline.config import ReportConfig, RunConfig, StageConfig, check
from pipeline.console import terminal
from pipeline.errors import ConfigError, InputError, UserError, writable
from pipeline.orchestration.kinds import kind_of
from pipeline.orchestration.run_plan import FORCED, StageRecord, StageRecords
from pipeline.records.manifest import Manifest, manifest_of
from pipeline.stages import fetch_inputs, fingerprints
from pipeline.stages.fingerprints import pin
from pipeline.stages.registry import type_of
from pipeline.storage import places

OF_A_MODEL = ("convert", "evaluate")  # what a user adds to a run
Names = list[str]  # of stages
Stages = dict[str, StageConfig]
Needs = dict[str, tuple[str, ...]]  # the stages that each stage reads from
Status = tuple[str, str | None, int]  # of a stage: fingerprint, why it has to run or None, steps that are done


def plan_graph(config: RunConfig) -> StageRecords:
    """Return the whole graph in an executable order; `config` has the configurations of its stages.

    Raises:
        ConfigError: an unknown key, a bad value, a cycle, or a stage of `force` that does not
            exist or cannot be forced.
    """
    stages: Stages = copy.deepcopy(config.stages)
    commits: dict[str, str] = {}  # all stages read the same one
    for name, settings in stages.items():
        try:
            pin(settings, commits)
        except UserError as error:
            raise error.but(where=f"stage {name}") from error
    needs = needs_of(stages)
    if config.seeds:
        stages = add_seed_copies(config, stages, stages_from_training(stages, needs))
        needs = needs_of(stages)
    check_force(config, stages)
    makers = makers_of(stages)
    for name, settings in stages.items():
        kind_of(name).check_fit(name, settings, makers)
    nodes: dict[str, StageRecord] = {}
    offered: dict[str, int] = {}  # positions, by the folder of a model
    for name in sort_topologically(needs):
        nodes[name] = plan_stage(config, name, stages[name], needs[name], nodes)
    for name, node in nodes.items():
        offered[os.path.normpath(node.config.out)] = kind_of(name).positions(name, node.config, makers, offered)
    return list(nodes.values())


def plan_stage(
    config: RunConfig, name: str, settings: StageConfig, needs: tuple[str, ...], earlier: Mapping[str, StageRecord]
) -> StageRecord:
    """Return the record of a stage: as what is there of it, if that counts, and why it has to run, if it does.

    `needs` are the stages that it reads, whose records are among the `earlier` ones.
    """
    before = {os.path.normpath(node.config.out): node.fingerprint for node in earlier.values()}
    kind, redone = type_of(name), [other for other in needs if earlier[other].reason is not None]
    if isinstance(settings, ReportConfig):
        settings.stages = [*settings.stages, *find_user_results(config.workdir, before)]
    if name in config.force:  # what is there may be anything
        status: Status = (fingerprints.fingerprint(kind, settings, before)[0], FORCED, 0)
    else:
        settings, status = reuse_settings(kind, settings, before, redone)
    fingerprint, reason, done = status
    return StageRecord(
        name=name, kind=kind, config=settings, needs=needs, fingerprint=fingerprint, reason=reason, done=done
    )


def makers_of(stages: Stages) -> dict[str, StageConfig]:
    """Return the stages by the folders that they make."""
    return {os.path.normpath(one.out): one for one in stages.values()}


def reuse_settings(
    kind: str, settings: StageConfig, upstream: fingerprints.Sources, redone: Names
) -> tuple[StageConfig, Status]:
    """Return a stage's configuration and status: those of a result that is there, if it would take it."""
    status = stage_status(kind, settings, upstream, redone)
    for earlier in kind_of(kind).known_before(settings) if status[1] is not None and not status[2] else ():
        earlier_status = stage_status(kind, earlier, upstream, redone)
        if earlier_status[1] is None or earlier_status[2]:
            return earlier, earlier_status
    return settings, status


def stage_status(kind: str, settings: StageConfig, upstream: fingerprints.Sources, redone: Names) -> Status:
    """Return the fingerprint of a stage, why it has to run (None: it is up to date), and its steps that are done.

    `upstream` are the fingerprints of what stages before it make, `redone` those that it reads and that have to run.
    """
    fingerprint, sources = fingerprints.fingerprint(kind, settings, upstream)
    present, fault = fingerprints.compare_manifest(kind, settings, fingerprint, sources)
    if present is not None and fault is None:
        return present.fingerprint, None, 0
    done, begins = kind_of(kind).first_step(settings, fingerprint, sources)
    if present is None:
        return fingerprint, f"not made yet{begins}", done
    return fingerprint, rerun_reason(kind, present, settings, fault, sources, redone, begins), done


def find_user_results(workdir: str, upstream: fingerprints.Sources) -> Names:
    """Return the folders in that of a run that its user made from what its stages make.

    `upstream` has the fingerprints of the stages by path. Results of a model that is now another one
    are left out, which is said.
    """
    by_path, paths = {fingerprints.absolute(path): one for path, one in upstream.items()}, []
    folders = [path for path in fetch_inputs.list_stages(workdir) if fingerprints.absolute(path) not in by_path]
    results = [(path, one) for path in folders if (one := Manifest.read(path, of_input=True))]
    for path, manifest in sorted(results, key=lambda pair: pair[1].finished):
        current = fingerprints.compare_inputs(manifest, by_path)
        if manifest.stage not in OF_A_MODEL or not current:
            continue
        if all(current.values()):
            by_path[fingerprints.absolute(path)] = manifest.fingerprint
            paths.append(path)
        else:
            terminal.say(f"{path} is of another model than this run's: not in the report until it has run again")
    return paths


def check_force(config: RunConfig, stages: Iterable[str]) -> None:
    """Raise ConfigError if the stages of `force` do not exist, or cannot be forced."""
    if config.force and config.executor.pods:
        raise ConfigError(
            "not with executor=kubernetes, whose driver would start it over whenever it restarts; delete "
            f"{config.workdir}/{config.force[0]} instead",
            "force",
            f"[{','.join(config.force)}]",
        )
    if unknown := sorted(set(config.force) - set(stages)):
        raise ConfigError(f"no such stage; choose one of {', '.join(stages)}", "force", unknown[0])


def needs_of(stages: Stages) -> Needs:
    """Return the stages that each stage reads from, by name."""
    makers = {os.path.normpath(settings.out): name for name, settings in stages.items()}
    needs: Needs = {}
    for name, settings in stages.items():
        paths = fingerprints.inputs(settings).values()
        read = (fingerprints.producer_of(path, makers) for path in paths)
        needs[name] = tuple(dict.fromkeys(maker for maker in read if maker is not None))
    return needs


def check_places(config: RunConfig, nodes: StageRecords) -> None:
    """Raise UserError if an external input does not exist, `workdir` is not writable, or a stage lacks something."""
    makers = makers_of({node.name: node.config for node in nodes})
    for node in (one for one in nodes if one.reason):
        kind_of(node.name).check_places(node.name, node.config, config, makers)
        for key, path in fingerprints.inputs(node.config).items():
            # Of a task its kind has looked for those that it reads.
            checked = key.startswith("task.") or fingerprints.producer_of(path, makers) is not None
            if not checked and not places.is_folder(places.at(path)) and not places.matching(path):
                raise InputError("does not exist; correct the path", key, path, where=f"stage {node.name}")
    if fetch_inputs.in_store(config.workdir):
        return  # its lock has been written
    with writable(config.workdir, "workdir"), tempfile.TemporaryFile(dir=nearest_existing(config.workdir)):
        pass


def nearest_existing(folder: str) -> Path:
    """Return a folder, or the nearest one above it that is there."""
    path = Path(folder).absolute()
    return next(above for above in (path, *path.parents) if os.path.exists(above))


def sort_topologically(needs: Needs) -> Names:
    """Sort names topologically, keeping their order where dependencies allow.

    Raises:
        ConfigError: the dependencies have a cycle.
    """
    done: Names = []
    waiting = list(needs)
    while waiting:
        ready = next((n for n in waiting if all(other in done for other in needs[n])), None)
        if ready is None:
            raise ConfigError(f"cyclic dependency between {', '.join(waiting)}; change their inputs", "stages")
        done.append(ready)
        waiting.remove(ready)
    return done


def rerun_reason(
    kind: str,
    present: Manifest,
    config: StageConfig,
    fault: str | None,
    sources: fingerprints.Sources,
    redone: Names,
    begins: str,
) -> str:
    """Return the reason why a stage has to run; `fault` is a file that has changed, `begins` of `first_step`."""
    keep = kind_of(kind).how_to_keep(config)
    if redone:
        return f"its input changes: {', '.join(redone)}{keep}"
    if fault:
        return f"its file {fault} is missing or has changed"
    if changed := [key for key, value in sources.items() if present.inputs.get(key) != value]:
        paths = fingerprints.inputs(config)
        # `fingerprints.fingerprint_path` hashes no more than this of an external input.
        looks = " (a file's name, size or time stamp)"
        # Of a list, the folder says more than its place.
        names = {key: os.path.basename(paths[key]) if key[-1].isdigit() else key for key in changed}
        named = [names[key] if manifest_of(paths[key]) else names[key] + looks for key in changed]
        return f"its input changed: {', '.join(named)}{keep}"
    corpus = getattr(config, "corpus", None)
    language = corpus.language if corpus is not None else ""
    settings = fingerprints.differences(fingerprints.changes(present.config, config), language)
    return f"settings changed: {settings}{begins}" if settings else "its code changed"


def add_seed_copies(config: RunConfig, stages: Stages, copied: Names) -> Stages:
    """Return the stages with copies for `config.seeds`, all stages of one seed after another.

    Training, and all stages that read what it made, are copied; the others are shared. The stages
    of the run's own `seed` keep their names, so that a finished run with one seed is reused;
    another seed's are called train-seed1.

    Args:
        config: the run.
        stages: configuration of each stage, by name.
        copied: names of the stages that are copied, or report.

    Raises:
        ConfigError: the seeds cannot be used in this run.
    """
    check_seeds(config, stages, copied)
    reports = {name: one for name in copied if isinstance(one := stages[name], ReportConfig)}
    result = {name: one for name, one in stages.items() if name not in copied}
    for seed in config.seeds:
        for name in copied:
            if name not in reports:
                copied_name = name_for(name, seed, config.seed)
                if copied_name in result:
                    raise ConfigError(f"the recipe has a stage {copied_name} already; rename it", "seeds", config.seeds)
                result[copied_name] = copy_for_seed(config, seed, name, stages[name], stages, copied)
    for settings in reports.values():
        settings.stages = [one.out for one in result.values()]
    return result | reports


def stages_from_training(stages: Stages, needs: Needs) -> Names:
    """Return the stages that train, and those that read what they made, directly or not."""
    reached = {name for name in stages if type_of(name) == "train"}
    for _ in stages:
        reached |= {name for name in stages if reached & set(needs[name])}
    return [name for name in stages if name in reached]


def check_seeds(config: RunConfig, stages: Stages, copied: Names) -> None:
    """Raise ConfigError if the run cannot have these seeds."""
    check(bool(copied), f"recipe {config.recipe} has no training; leave seeds out", "seeds", config.seeds)
    check(len(set(config.seeds)) == len(config.seeds), "contains a value twice", "seeds", config.seeds)
    for name in copied:
        settings = stages[name]
        if isinstance(settings, TrainConfig):
            problem = f"cannot be combined with seeds={config.seeds}; leave one of them out"
            check(settings.seed == config.seed, problem, f"{name}.seed", settings.seed)


def name_for(name: str, seed: int, first: int) -> str:
    """Return the name of a stage's copy; that of the run's own seed, `first`, is the stage's."""
    return name if seed == first else f"{name}-seed{seed}"


def copy_for_seed(
    config: RunConfig, seed: int, kind: str, settings: StageConfig, stages: Stages, copied: Names
) -> StageConfig:
    """Return a copy of a stage's configuration that reads and writes the folders of a seed."""
    seeded = copy.deepcopy(settings)
    seeded.out = name_for(settings.out, seed, config.seed)
    kind_of(kind).set_seed(seeded, seed, config, lambda name: name_for(name, seed, config.seed))
    makers = {os.path.normpath(stages[name].out): stages[name].out for name in copied}
    for key, path in fingerprints.inputs(settings).items():
        if (out := fingerprints.producer_of(path, makers)) is not None:
            inside = os.path.normpath(path).removeprefix(os.path.normpath(out))
            set_key(seeded, key, name_for(out, seed, config.seed) + inside)
    return seeded
