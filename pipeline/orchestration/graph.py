"""The graph of a recipe: stages, their dependencies, and which of them are up to date.

Dependencies are inferred: a stage that reads a folder waits for the stage that makes it.
"""

import copy
import dataclasses
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from model.config import DataConfig, TrainConfig, check_length
from model.tracking import wandb
from model.training import extending
from pipeline.common.schema import set_key
from pipeline.config import (
    ConvertConfig,
    EvaluateConfig,
    PrepareConfig,
    ReportConfig,
    RunConfig,
    StageConfig,
    TasksConfig,
    check,
)
from pipeline.console import terminal
from pipeline.errors import ConfigError, InputError, UserError, writable
from pipeline.evaluation import examples
from pipeline.orchestration.run_document import FORCED, Nodes, StageRecord
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import MANIFEST, Manifest, require_manifest
from pipeline.stages import fetch_inputs, fingerprints
from pipeline.stages.fingerprints import Identity, pin
from pipeline.stages.registry import type_of
from pipeline.storage import places, strict_json

OF_A_MODEL = ("convert", "evaluate")  # what a user adds to a run
Names = list[str]  # of stages
Stages = dict[str, StageConfig]
Needs = dict[str, tuple[str, ...]]  # the stages that each stage reads from
Status = tuple[str, str | None, int]  # of a stage: fingerprint, why it has to run or None, steps that are done


def plan_graph(config: RunConfig) -> Nodes:
    """Return the whole graph in an executable order; `config` has the configurations of its stages.

    Raises:
        ConfigError: an unknown key, a bad value, a cycle, or a stage of `force` that does not
            exist or cannot be forced.
    """
    found: Stages = copy.deepcopy(config.stages)
    commits: dict[str, str] = {}  # all stages read the same one
    for name, settings in found.items():
        try:
            pin(settings, commits)
        except UserError as error:
            raise error.but(where=f"stage {name}") from error
    needs = needs_of(found)
    if config.seeds:
        found = add_seed_copies(config, found, stages_from_training(found, needs))
        needs = needs_of(found)
    check_force(config, found)
    check_fit(found)
    nodes: dict[str, StageRecord] = {}
    for name in sort_topologically(needs):
        before = {os.path.normpath(node.config.out): node.fingerprint for node in nodes.values()}
        kind, settings = type_of(name), found[name]
        if isinstance(settings, ReportConfig):
            settings.stages = [*settings.stages, *find_user_results(config.workdir, before)]
        redone = [other for other in needs[name] if nodes[other].reason is not None]
        if name in config.force:  # what is there may be anything
            status: Status = (fingerprints.fingerprint(kind, settings, before)[0], FORCED, 0)
        else:
            settings, status = reuse_positions(kind, settings, before, redone)
        fingerprint, reason, done = status
        found[name] = settings
        nodes[name] = StageRecord(
            name=name, kind=kind, config=settings, needs=needs[name], fingerprint=fingerprint, reason=reason, done=done
        )
    check_positions(found)
    return list(nodes.values())


def reuse_positions(
    kind: str, settings: StageConfig, known: fingerprints.Sources, redone: Names
) -> tuple[StageConfig, Status]:
    """Return a stage's configuration and status, with the positions of the training there if these save steps.

    `model.positions=0` asks for as many as the sequences need, and a model of more has them.
    """
    status = stage_status(kind, settings, fingerprints.fingerprint(kind, settings, known), redone)
    fresh = status[1] is not None and not status[2]
    if fresh and isinstance(settings, TrainConfig) and not settings.model.positions:
        for run, step in dict(fetch_inputs.list_checkpoints(settings.out)).items():
            folder = f"{settings.out}/{checkpoint_folder.RUNS}/{run}/{checkpoint_folder.name_of(step)}"
            state = strict_json.own(places.at(f"{folder}/{checkpoint_folder.STATE}"))
            there = dataclasses.replace(settings.model, positions=state.get("model", {}).get("positions", 0))
            kept = dataclasses.replace(settings, model=there)
            found = stage_status(kind, kept, fingerprints.fingerprint(kind, kept, known), redone)
            if found[1] is None or found[2]:
                return kept, found
    return settings, status


def stage_status(kind: str, settings: StageConfig, identity: Identity, redone: Names) -> Status:
    """Return the fingerprint of a stage, why it has to run (None: it is up to date), and its steps that are done.

    `redone` are the stages that it reads and that have to run.
    """
    fingerprint, sources = identity
    present, fault = fingerprints.compare_manifest(kind, settings, fingerprint, sources)
    if present is not None and fault is None:
        return present.fingerprint, None, 0
    done, begins = first_step(settings, fingerprint, sources)
    reason = rerun_reason(present, settings, fault, sources, redone, begins) if present else f"not made yet{begins}"
    return fingerprint, reason, done


def find_user_results(workdir: str, known: fingerprints.Sources) -> Names:
    """Return the folders in that of a run that its user made from what its stages make.

    `known` has the fingerprints of the stages by path. Results of a model that is now another one
    are left out, which is said.
    """
    made, found = {fingerprints.absolute(path): one for path, one in known.items()}, []
    folders = [path for path in fetch_inputs.list_stages(workdir) if fingerprints.absolute(path) not in made]
    there = [(path, one) for path in folders if (one := Manifest.read(path, of_input=True))]
    for path, manifest in sorted(there, key=lambda pair: pair[1].finished):
        current = fingerprints.compare_inputs(manifest, made)
        if manifest.stage not in OF_A_MODEL or not current:
            continue
        if all(current.values()):
            made[fingerprints.absolute(path)] = manifest.fingerprint
            found.append(path)
        else:
            terminal.say(f"{path} is of another model than this run's: not in the report until it has run again")
    return found


def require_push(node: StageRecord) -> StageRecord:
    """Return the node with what it uploads as a reason to run, if it does.

    Its command sends what the hub does not have; the stages that read the folder stay as they are.
    """
    if not isinstance(node.config, ConvertConfig) or not node.config.push:
        return node
    there = [] if node.reason else [str(file).removeprefix(f"{node.out}/") for file in places.below(node.out)]
    files = [name for name in there if name != MANIFEST] or ["README.md, config.json, weights, tokenizer's files"]
    reason = f"uploads to {node.config.push} (private if new): {', '.join(files)}"
    return dataclasses.replace(node, reason=f"{node.reason}; {reason}" if node.reason else reason)


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


def needs_of(found: Stages) -> Needs:
    """Return the stages that each stage reads from, by name."""
    makers = {os.path.normpath(settings.out): name for name, settings in found.items()}
    needs: Needs = {}
    for name, settings in found.items():
        paths = fingerprints.inputs(settings).values()
        read = (fingerprints.producer_of(path, makers) for path in paths)
        needs[name] = tuple(dict.fromkeys(maker for maker in read if maker is not None))
    return needs


def check_fit(found: Stages) -> None:
    """Raise ConfigError where a stage would refuse, maybe after hours, what another has made."""
    made = {os.path.normpath(one.out): one for one in found.values()}
    trained = {os.path.normpath(d) for one in found.values() if isinstance(one, TrainConfig) for d in one.data.folders}
    learnt = (one for place, one in made.items() if place in trained or not trained)
    share = min((one.validation_share for one in learnt if isinstance(one, PrepareConfig)), default=1.0)
    for name, one in found.items():
        if isinstance(one, TasksConfig) and one.validation_share > share:
            problem = f"is more than prepare holds out, {share:g}: training would see the text of the tasks"
            raise ConfigError(problem, f"{name}.validation_share", one.validation_share)
        training = fingerprints.producer_of(one.train, made) if isinstance(one, ConvertConfig) else None
        if isinstance(one, ConvertConfig) and isinstance(training, TrainConfig):
            kept = training.ema is not None or not one.ema
            check(kept, "the training keeps no average; set train.ema=0.999", f"{name}.ema", one.ema)
            more = training.keep_every or training.save_at_words or Manifest.read(training.out)
            enough = bool(more) or one.average <= training.keep
            check(enough, f"the training keeps {training.keep}; set train.keep too", f"{name}.average", one.average)
        if isinstance(one, TrainConfig) and "WANDB_MODE" in os.environ:
            wandb.mode_of(one.tracking.mode)


def check_positions(found: Stages) -> None:
    """Raise ConfigError where sequences are longer than the positions of the model that will be made."""
    made = {os.path.normpath(one.out): one for one in found.values()}
    offered: dict[str, int] = {}  # by the folder of a training, then of what converts it
    for name, one in found.items():
        if isinstance(one, TrainConfig):
            makers = (fingerprints.producer_of(folder, made) for folder in one.data.folders)
            length = max(getattr(maker, "sequence_length", 0) for maker in makers)
            if one.model.positions:
                check_length(one.model, length, one.data, f"{name}.model.positions")
            if one.start is None:
                offered[os.path.normpath(one.out)] = one.model.positions or length
    for one in (one for one in found.values() if isinstance(one, ConvertConfig)):
        offered[os.path.normpath(one.out)] = fingerprints.producer_of(one.train, offered) or 0
    for name, one in found.items():
        most = fingerprints.producer_of(one.pretrained, offered) if isinstance(one, EvaluateConfig) else None
        if isinstance(one, EvaluateConfig) and most and (one.sequence_length or 0) > most:
            problem = f"the model will have {most} positions; set it so, or train.model.positions={one.sequence_length}"
            raise ConfigError(problem, f"{name}.sequence_length", one.sequence_length)


def check_places(config: RunConfig, nodes: Nodes) -> None:
    """Raise InputError if an external input does not exist or `workdir` is not writable.

    Also if the files of a task are missing in its folder, or a key of W&B: they are read after hours.

    Raises:
        ConfigError: `tracking.mode` is online and this machine, which will train, has no key.
    """
    makers = {os.path.normpath(node.config.out): node.config for node in nodes}
    for node in (one for one in nodes if one.reason):
        if isinstance(node.config, TrainConfig):
            check_shards(node.name, node.config.data, makers)
            asked, key = node.config.tracking, f"{node.name}.tracking.mode"
            kept = not config.executor.here or asked.name == "none" or asked.mode != "online" or wandb.has_key()
            check(kept, "W&B has no key here; run wandb login, or set this to offline", key, asked.mode)
        for key, path in fingerprints.inputs(node.config).items():
            made = fingerprints.producer_of(path, makers) is not None
            if not made and not places.is_folder(places.at(path)) and not places.matching(path):
                raise InputError("does not exist; correct the path", key, path, where=f"stage {node.name}")
            if made or key != "data" or not isinstance(node.config, EvaluateConfig) or fetch_inputs.in_store(path):
                continue
            try:
                examples.check_files(path, node.config.task)
            except UserError as error:
                raise error.but(where=f"stage {node.name}") from error
    if fetch_inputs.in_store(config.workdir):
        return  # its lock has been written
    with writable(config.workdir, "workdir"), tempfile.TemporaryFile(dir=nearest_existing(config.workdir)):
        pass


def nearest_existing(folder: str) -> Path:
    """Return a folder, or the nearest one above it that is there."""
    above = Path(folder).absolute()
    while not os.path.exists(above):
        above = above.parent
    return above


def check_shards(stage: str, data: DataConfig, makers: Mapping[str, StageConfig]) -> None:
    """Raise UserError if a training lacks shards that no stage makes, or has no held-out ones."""
    made = {folder: fingerprints.producer_of(folder, makers) for folder in (*data.folders, *data.validation)}
    for folder in (folder for folder, maker in made.items() if maker is None):
        require_manifest(folder, "prepare", f"{stage}.{data.key_of(folder)}")
    shares = [getattr(made[folder], "validation_share", None) for folder in data.held_out.folders]
    cure = f"holds nothing out; set it above 0, or {stage}.data.validation=[FOLDER]"
    check(any(share != 0 for share in shares), cure, "prepare.validation_share", 0)


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


def first_step(config: StageConfig, fingerprint: str, sources: fingerprints.Sources) -> tuple[int, str]:
    """Return the step after which a training continues, and the end of a sentence that says so."""
    if not isinstance(config, TrainConfig) or not (found := fetch_inputs.list_checkpoints(config.out)):
        return 0, ""
    if steps := [step for run, step in found if run == checkpoint_folder.run_name(fingerprint)]:
        return max(steps), f"; resumes after step {max(steps):,}"
    if fetch_inputs.in_store(config.out):
        return 0, "; has checkpoints of other settings"
    common = fingerprints.partial_fingerprint(config, sources, extending.independent_keys(config))
    if step := extending.step_in_common(config, common):
        return step, f"; continues after step {step:,}"
    kept = dataclasses.replace(config, keep_best=False)  # which compares all evaluations
    common_of_kept = fingerprints.partial_fingerprint(kept, sources, extending.independent_keys(kept))
    if config.keep_best and (step := extending.step_in_common(kept, common_of_kept)):
        return 0, f"; starts at step 0, but after step {step:,} with train.keep_best=false"
    made = Manifest.read(config.out)
    if made and (spread := made.config.get("steps")):  # shares of all steps may be what differs
        kept = dataclasses.replace(config, schedule=dataclasses.replace(config.schedule, spread_steps=spread))
        if step := extending.step_in_common(kept, common):
            return 0, f"; starts at step 0, but after step {step:,} with train.schedule.spread_steps={spread}"
    return 0, f"; starts at step 0, as the checkpoint after step {found[-1][1]:,} has other first steps"


def rerun_reason(
    present: Manifest, config: StageConfig, fault: str | None, sources: fingerprints.Sources, redone: Names, begins: str
) -> str:
    """Return the reason why a stage has to run; `fault` is a file that has changed, `begins` of `first_step`."""
    if redone:
        return f"its input changes: {', '.join(redone)}{trained_again(config)}"
    if fault:
        return f"its file {fault} is missing or has changed"
    if changed := [key for key, value in sources.items() if present.inputs.get(key) != value]:
        paths = fingerprints.inputs(config)
        # `fingerprints.fingerprint_path` hashes no more than this of an external input.
        looks = " (a file's name, size or time stamp)"
        # Of a list, the folder says more than its place.
        names = {key: os.path.basename(paths[key]) if key[-1].isdigit() else key for key in changed}
        named = [names[key] if fingerprints.manifest_of(paths[key]) else names[key] + looks for key in changed]
        return f"its input changed: {', '.join(named)}{trained_again(config)}"
    corpus = getattr(config, "corpus", None)
    language = corpus.language if corpus is not None else ""
    settings = fingerprints.differences(fingerprints.changes(present.config, config), language)
    return f"settings changed: {settings}{begins}" if settings else "its code changed"


def trained_again(config: StageConfig) -> str:
    """Return the end of a sentence that says how to continue from a finished model whose text is now another."""
    if not isinstance(config, TrainConfig) or config.start is not None:  # a later phase starts from what is new
        return ""
    keys = f"vocab.existing={config.data.vocab} model=auto train.start={config.out} train.start_optimizer=true"
    return f"; its model is trained again: to continue from it instead, add workdir=NEW {keys}"


def add_seed_copies(config: RunConfig, found: Stages, copied: Names) -> Stages:
    """Return the stages with copies for `config.seeds`, all stages of one seed after another.

    Training, and all stages that read what it made, are copied; the others are shared. The stages
    of the run's own `seed` keep their names, so that a finished run with one seed is reused;
    another seed's are called train-seed1.

    Args:
        config: the run.
        found: configuration of each stage, by name.
        copied: names of the stages that are copied, or report.

    Raises:
        ConfigError: the seeds cannot be used in this run.
    """
    check_seeds(config, found, copied)
    reports = {name: one for name in copied if isinstance(one := found[name], ReportConfig)}
    made = {name: one for name, one in found.items() if name not in copied}
    for seed in config.seeds:
        for name in copied:
            if name not in reports:
                own = name_for(name, seed, config.seed)
                if own in made:
                    raise ConfigError(f"the recipe has a stage {own} already; rename it", "seeds", config.seeds)
                made[own] = copy_for_seed(config, seed, found[name], found, copied)
    for settings in reports.values():
        settings.stages = [one.out for one in made.values()]
    return made | reports


def stages_from_training(found: Stages, needs: Needs) -> Names:
    """Return the stages that train, and those that read what they made, directly or not."""
    reached = {name for name in found if type_of(name) == "train"}
    for _ in found:
        reached |= {name for name in found if reached & set(needs[name])}
    return [name for name in found if name in reached]


def check_seeds(config: RunConfig, found: Stages, copied: Names) -> None:
    """Raise ConfigError if the run cannot have these seeds."""
    check(bool(copied), f"recipe {config.recipe} has no training; leave seeds out", "seeds", config.seeds)
    check(len(set(config.seeds)) == len(config.seeds), "contains a value twice", "seeds", config.seeds)
    for name in copied:
        settings = found[name]
        if isinstance(settings, TrainConfig) and settings.seed != config.seed:
            raise ConfigError(
                f"cannot be combined with seeds={config.seeds}; leave one of them out", f"{name}.seed", settings.seed
            )


def name_for(name: str, seed: int, first: int) -> str:
    """Return the name of a stage's copy; that of the run's own seed, `first`, is the stage's."""
    return name if seed == first else f"{name}-seed{seed}"


def copy_for_seed(config: RunConfig, seed: int, settings: StageConfig, found: Stages, copied: Names) -> StageConfig:
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
    makers = {os.path.normpath(found[name].out): found[name].out for name in copied}
    for key, path in fingerprints.inputs(settings).items():
        if (out := fingerprints.producer_of(path, makers)) is not None:
            inside = os.path.normpath(path).removeprefix(os.path.normpath(out))
            set_key(made, key, name_for(out, seed, config.seed) + inside)
    return made
