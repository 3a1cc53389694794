"""What the graph asks of a stage by its type: one class a type, none where nothing is special."""

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from model.config import TrainConfig, check_length
from model.config.training import check_pairs
from model.tracking import wandb
from model.training import extending
from pipeline.config import ConvertConfig, EvaluateConfig, PrepareConfig, RunConfig, StageConfig, TasksConfig, check
from pipeline.errors import ConfigError, UserError
from pipeline.evaluation import examples
from pipeline.evaluation.evaluators import evaluator_of
from pipeline.orchestration.run_plan import StageRecord
from pipeline.orchestration.stage_keys import explain_in_plan
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import MANIFEST, Manifest, require_manifest
from pipeline.stages import fetch_inputs, fingerprints
from pipeline.stages.registry import type_of
from pipeline.storage import places, strict_json

C = TypeVar("C", bound=StageConfig)
Makers = Mapping[str, StageConfig]  # by the folder that they make
FirstStep = tuple[int, str]  # after which a training continues, and the end of a sentence that says so


class Kind(Generic[C]):
    """A type of stage; what is not overridden asks nothing, and does nothing."""

    def check_fit(self, name: str, one: C, makers: Makers) -> None:
        """Raise ConfigError where it would refuse, maybe after hours, what another stage has made."""

    def positions(self, name: str, one: C, makers: Makers, offered: Mapping[str, int]) -> int:
        """Return the positions of the model that it makes, 0: none or unknown; `offered` has those before, by folder.

        Raises:
            ConfigError: its sequences are longer than the positions of its model.
        """
        return 0

    def check_places(self, name: str, one: C, config: RunConfig, makers: Makers) -> None:
        """Raise UserError where it will lack what is not there now."""

    def set_seed(self, seeded: C, seed: int, config: RunConfig, rename: Callable[[str], str]) -> None:
        """Change a copy that is for a seed; `rename` returns the name of a copy."""

    def first_step(self, one: C, fingerprint: str, sources: fingerprints.Sources) -> FirstStep:
        """Return where it continues."""
        return 0, ""

    def known_before(self, one: C) -> list[C]:
        """Return other configurations whose results it would take too."""
        return []

    def how_to_keep(self, one: C) -> str:
        """Return the end of a sentence that says how to continue from a finished result whose input is another now."""
        return ""

    def with_push(self, node: StageRecord) -> StageRecord:
        """Return its record with what it uploads as a reason to run, if it does."""
        return node


class Tasks(Kind[TasksConfig]):
    """Tasks from held-out text."""

    def check_fit(self, name: str, one: TasksConfig, makers: Makers) -> None:
        """Refuse text that is trained on."""
        trained = {
            os.path.normpath(d) for one in makers.values() if isinstance(one, TrainConfig) for d in one.data.folders
        }
        learnt = (maker for place, maker in makers.items() if place in trained or not trained)
        share = min((each.validation_share for each in learnt if isinstance(each, PrepareConfig)), default=1.0)
        problem = f"is more than prepare holds out, {share:g}: training would see the text of the tasks"
        check(one.validation_share <= share, problem, f"{name}.validation_share", one.validation_share)


class Train(Kind[TrainConfig]):
    """A training."""

    def check_fit(self, name: str, one: TrainConfig, makers: Makers) -> None:
        """Refuse a value of WANDB_MODE, and pairs that shards will not have."""
        for folder in one.data.folders:
            maker = fingerprints.producer_of(folder, makers)
            try:
                check_pairs(one.objective, getattr(maker, "pairs", one.objective.pairs), folder)
            except ConfigError as error:
                raise explain_in_plan(error, name) from error
        if "WANDB_MODE" in os.environ:
            wandb.mode_of(one.tracking.mode)

    def positions(self, name: str, one: TrainConfig, makers: Makers, offered: Mapping[str, int]) -> int:
        """Return its own, or as many as its sequences need."""
        producers = (fingerprints.producer_of(folder, makers) for folder in one.data.folders)
        length = max(getattr(maker, "sequence_length", 0) for maker in producers)
        if one.model.positions:
            check_length(one.model, length, one.data, f"{name}.model.positions")
        return (one.model.positions or length) if one.start is None else 0

    def check_places(self, name: str, one: TrainConfig, config: RunConfig, makers: Makers) -> None:
        """Look for shards that no stage makes, for held-out ones, and for a key of W&B."""
        data, tracking = one.data, one.tracking
        producers = {folder: fingerprints.producer_of(folder, makers) for folder in (*data.folders, *data.validation)}
        for folder in (folder for folder, maker in producers.items() if maker is None):
            require_manifest(folder, "prepare", f"{name}.{data.key_of(folder)}")
        shares = [getattr(producers[folder], "validation_share", None) for folder in data.held_out.folders]
        cure = f"holds nothing out; set it above 0, or {name}.data.validation=[FOLDER]"
        check(any(share != 0 for share in shares), cure, "prepare.validation_share", 0)
        has_access = not config.executor.here or tracking.name == "none" or tracking.mode != "online" or wandb.has_key()
        cure = "W&B has no key here; run wandb login, or set this to offline"
        check(has_access, cure, f"{name}.tracking.mode", tracking.mode)

    def set_seed(self, seeded: TrainConfig, seed: int, config: RunConfig, rename: Callable[[str], str]) -> None:
        """Train with it."""
        seeded.seed = seed

    def first_step(self, one: TrainConfig, fingerprint: str, sources: fingerprints.Sources) -> FirstStep:
        """Return the step of a checkpoint that is its own, or that another training has in common with it."""
        if not (checkpoints := fetch_inputs.list_checkpoints(one.out)):
            return 0, ""
        if steps := [step for run, step in checkpoints if run == checkpoint_folder.run_name(fingerprint)]:
            return max(steps), f"; resumes after step {max(steps):,}"
        if fetch_inputs.in_store(one.out):
            return 0, "; has checkpoints of other settings"
        common = fingerprints.partial_fingerprint(one, sources, extending.independent_keys(one))
        if step := extending.step_in_common(one, common):
            return step, f"; continues after step {step:,}"
        spread = manifest.config.get("steps") if (manifest := Manifest.read(one.out)) else None
        for each in (one, *self.known_before(one)):  # shares of all steps, or all evaluations, may be what differs
            shares = dataclasses.replace(each, schedule=dataclasses.replace(one.schedule, spread_steps=spread))
            ways = {"keep_best=false": dataclasses.replace(each, keep_best=False)} if one.keep_best else {}
            for key, variant in (ways | {f"schedule.spread_steps={spread}": shares} if spread else ways).items():
                common = fingerprints.partial_fingerprint(variant, sources, extending.independent_keys(variant))
                if step := extending.step_in_common(variant, common):
                    return 0, f"; starts at step 0, but after step {step:,} with train.{key}"
        return 0, f"; starts at step 0, as the checkpoint after step {checkpoints[-1][1]:,} has other first steps"

    def known_before(self, one: TrainConfig) -> list[TrainConfig]:
        """Return it with the positions of each training there.

        `model.positions=0` asks for as many as the sequences need, and a model of more has them.
        """
        variants = []
        for run, step in () if one.model.positions else dict(fetch_inputs.list_checkpoints(one.out)).items():
            folder = f"{one.out}/{checkpoint_folder.RUNS}/{run}/{checkpoint_folder.name_of(step)}"
            state = strict_json.own(places.at(f"{folder}/{checkpoint_folder.STATE}"))
            model = dataclasses.replace(one.model, positions=state.get("model", {}).get("positions", 0))
            variants.append(dataclasses.replace(one, model=model))
        return variants

    def how_to_keep(self, one: TrainConfig) -> str:
        """Name the keys that start from a finished model."""
        if (one.start or "").startswith(f"{one.workdir}/"):  # a later phase starts from what is new
            return ""
        keys = f"vocab.existing={one.data.vocab} model=auto train.start={one.out} train.start_optimizer=true"
        return f"; its model is trained again: to continue from it instead, add workdir=NEW {keys}"


class Convert(Kind[ConvertConfig]):
    """Folders of models."""

    def check_fit(self, name: str, one: ConvertConfig, makers: Makers) -> None:
        """Refuse averages that the training does not keep."""
        training = fingerprints.producer_of(one.train, makers)
        if not isinstance(training, TrainConfig):
            return
        averaged = training.ema is not None or not one.ema
        check(averaged, "the training keeps no average; set train.ema=0.999", f"{name}.ema", one.ema)
        more = training.keep_every or training.save_at_words or Manifest.read(training.out)
        kept = min(training.keep, -(-(training.steps or sys.maxsize) // training.save_every))
        cure = f"the training keeps {kept}; set train.keep, and train.save_every, too"
        check(bool(more) or one.average <= kept, cure, f"{name}.average", one.average)

    def positions(self, name: str, one: ConvertConfig, makers: Makers, offered: Mapping[str, int]) -> int:
        """Return those of its training."""
        return fingerprints.producer_of(one.train, offered) or 0

    def set_seed(self, seeded: ConvertConfig, seed: int, config: RunConfig, rename: Callable[[str], str]) -> None:
        """Upload to a repository of its own."""
        seeded.push = seeded.push and rename(seeded.push)

    def with_push(self, node: StageRecord) -> StageRecord:
        """Name what its command sends: what the hub does not have; the stages that read the folder stay as they are."""
        push = getattr(node.config, "push", None)
        if not push:
            return node
        names = [] if node.reason else [str(file).removeprefix(f"{node.out}/") for file in places.below(node.out)]
        files = [name for name in names if name != MANIFEST] or ["README.md, config.json, weights, tokenizer's files"]
        reason = f"uploads to {push} (private if new): {', '.join(files)}"
        return dataclasses.replace(node, reason=f"{node.reason}; {reason}" if node.reason else reason)


class Evaluate(Kind[EvaluateConfig]):
    """Scores of a task."""

    def positions(self, name: str, one: EvaluateConfig, makers: Makers, offered: Mapping[str, int]) -> int:
        """Make no model; refuse sequences that its model cannot read."""
        most = fingerprints.producer_of(one.pretrained, offered)
        if most and (one.sequence_length or 0) > most:
            problem = f"the model will have {most} positions; set it so, or train.model.positions={one.sequence_length}"
            raise ConfigError(problem, f"{name}.sequence_length", one.sequence_length)
        return 0

    def check_places(self, name: str, one: EvaluateConfig, config: RunConfig, makers: Makers) -> None:
        """Look for the files of its task."""
        path = fingerprints.inputs(one).get("data")
        if path is None or fingerprints.producer_of(path, makers) is not None or fetch_inputs.in_store(path):
            return
        if not places.is_folder(places.at(path)):
            return  # as of every input
        try:
            examples.also_of(one)
            evaluator_of(one.task).check_files(path, one.task)
        except UserError as error:
            raise error.but(where=f"stage {name}") from error

    def set_seed(self, seeded: EvaluateConfig, seed: int, config: RunConfig, rename: Callable[[str], str]) -> None:
        """Evaluate random weights, which do not depend on the seed of pre-training, once."""
        keeper = config.seed if config.seed in config.seeds else config.seeds[0]
        seeded.baseline = seeded.baseline and seed == keeper


KINDS: dict[str, Kind[Any]] = {"tasks": Tasks(), "train": Train(), "convert": Convert(), "evaluate": Evaluate()}


def kind_of(stage: str) -> Kind[Any]:
    """Return the kind of a recipe's stage, by its name or type."""
    return KINDS.get(type_of(stage), Kind())
