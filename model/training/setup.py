"""What a training does before its first step: plan, join the other ranks, restore a state."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from model.config import ModelConfig, TrainConfig
from model.distributed import process_group, rank_card
from model.distributed.world import World
from model.encoders.architectures import build_model
from model.encoders.device import TYPES
from model.loader.loader import Loader
from model.loader.shard_files import ShardFiles
from model.loader.sources import LOCAL, CachedShards
from model.training import device_peak, extending, initial_weights, micro_batch, provenance, run_length
from model.training.checkpoint import Tensors
from model.training.deepspeed_config import compiles
from model.training.engine import Engine, start_world
from pipeline.common import counter_rng
from pipeline.common.schema import check
from pipeline.errors import BY_FORCE, InputError
from pipeline.records import checkpoint_folder
from pipeline.records.checkpoint_folder import State
from pipeline.storage.uploads import BackgroundUpload
from pipeline.tokenization.wordpiece import WordPiece

Beat = Callable[[], None]  # called while something is waited for


@dataclass(frozen=True)
class Plan:
    """What a training does, where that is known without the other ranks."""

    began: float  # when this start did, by the monotonic clock
    config: TrainConfig
    out: Path
    fingerprint: str
    model: ModelConfig
    wordpiece: WordPiece
    shards: list[ShardFiles]  # to train on and, if others, held out
    longest: int  # tokens of a sequence
    loader: Loader
    held_out: dict[str, Loader]  # all that is evaluated, and each part by its name
    steps: int
    first_steps: extending.TrajectoryHash

    @property
    def folder(self) -> Path:
        """Return the folder of the checkpoints."""
        return checkpoint_folder.folder_of(self.out, self.fingerprint)

    @property
    def beginning(self) -> State:
        """Return the state before the first step."""
        return State(
            step=0,
            samples=0,
            tokens=0,
            fingerprint=self.fingerprint,
            model=dataclasses.asdict(self.model),
            data=self.shards[0].checksum(),
            tokenizer=self.wordpiece.sha256,
        )


@dataclass(frozen=True)
class Run:
    """A training that is ready for its next step."""

    plan: Plan  # with the samples of a micro-batch
    world: World  # this rank among those that carry it out
    peak: float  # TFLOP/s of the device
    engine: Engine
    state: State  # where it is, changed by each step
    resumed: bool  # the state is that of a checkpoint of this training, which need not be saved again


def plan_training(config: TrainConfig, out: Path, fingerprint: str, common: str, addresses: Mapping[str, str]) -> Plan:
    """Read what a training is made from; arguments as of `trainer.train`.

    Raises:
        ConfigError, InputError: Settings, shards or vocabulary do not match.
    """
    began = time.monotonic()
    data = config.data
    shards = [ShardFiles(data, folders) for folders in (data.folders, data.validation) if folders]
    wordpiece = WordPiece.load(data.vocab)
    longest = max(files.sequence_length for files in shards)
    model = initial_weights.complete_size(config, wordpiece, longest)
    source = CachedShards(data, addresses) if data.cache else LOCAL
    reads = (config.objective, wordpiece, config.seed)
    loader = Loader(data, *reads, "train", source)
    evaluated = {"": data.held_out, **data.held_out_parts}
    held_out = {name: Loader(each, *reads, "validation") for name, each in evaluated.items()}
    most = f"must be at most the model's {model.layers} layers"
    check((config.freeze or 0) <= model.layers, most, "freeze", config.freeze)
    steps = run_length.steps_of(config)
    first_steps = extending.TrajectoryHash(config, steps, common)
    return Plan(
        began, config, out, fingerprint, model, wordpiece, shards, longest, loader, held_out, steps, first_steps
    )


def join_ranks(plan: Plan, beat: Beat) -> tuple[Plan, World, float]:
    """Meet the other ranks and verify the shards with them; return what `Run` begins with.

    `beat` is called for each shard.

    Raises:
        ConfigError, InputError: A GPU, a setting or a shard is not as it must be.
        Restart: Some ranks did not join in time.
    """
    config = plan.config
    card = rank_card.describe(config, plan.fingerprint)
    world = start_world(card, config.threads, config.start_timeout, config.timeout)
    if config.data.verify and not config.data.cache:  # it compares what it fetches
        for files in plan.shards:
            files.verify(world.rank, world.size, process_group.gather, beat)
    config = micro_batch.resolve_micro_batch(config, plan.model, world, plan.longest)
    (plan.folder / micro_batch.OOM_RECORD).unlink(missing_ok=True)  # of an earlier start
    return dataclasses.replace(plan, config=config), world, device_peak.tflops(world.device, config.precision)


def restore(plan: Plan, world: World, peak: float, store: BackgroundUpload, beat: Beat) -> Run:
    """Build the engine and load the newest checkpoint, or the weights of `start`, if any.

    Raises:
        InputError: They do not fit this training.
    """
    config, state, tensors, before = plan.config, plan.beginning, None, 0
    torch.manual_seed(int(counter_rng.key(config.seed, "initialise") >> 1))
    module = build_model(plan.model)
    newest = find_newest(plan, state.data, world.rank, store, beat)
    if newest is not None:
        path, saved = newest
        identity = {key: getattr(state, key) for key in ("fingerprint", "model", "tokenizer")}
        state, tensors = dataclasses.replace(saved, **identity), Tensors(path)
        before = saved.learnt or (provenance.learnt(config.start, plan.model.positions) if config.start else 0)
        module.load_state_dict({name: tensors.weight(name) for name, _ in module.named_parameters()})
    elif config.start is not None:
        source = initial_weights.start(config.start, plan.model, plan.wordpiece)
        module.load_state_dict(source.state)
        before = source.learnt
        if config.start_optimizer:
            path, saved = source.checkpoint()
            state, tensors = dataclasses.replace(state, carried=saved.updates), Tensors(path)
    shards_know = plan.loader.words_per_token is not None
    run_length.require_words(config, shards_know, state, None if newest is None else newest[0])
    freeze(module, config.freeze)
    module.encoder.recompute = config.compute.recompute
    if compiles(config, world):
        module.encoder.compile_layers(world.device, TYPES[config.precision])
    state = dataclasses.replace(state, learnt=max(before, plan.shards[0].sequence_length))
    engine = Engine(module, config, world)
    if tensors is not None:
        engine.load_state_dict(tensors, state.updates)
        engine.load_scale(state.loss_scale)
    return Run(plan, world, peak, engine, state, newest is not None)


def freeze(module: Any, layers: int | None) -> None:
    """Have the embeddings and the first `layers` not trained; None: train all."""
    if layers is not None:
        for part in (module.encoder.embeddings, *module.encoder.layers[:layers]):
            part.requires_grad_(False)


def find_newest(
    plan: Plan, data: str, rank: int, store: BackgroundUpload, beat: Beat
) -> checkpoint_folder.Checkpoint | None:
    """Return the newest checkpoint, the same on all ranks, with its files on this node.

    `data` is the checksum of the shards.

    Raises:
        InputError: It is of other shards, or the ranks do not share the folder.
    """
    config = plan.config
    if store.shared:
        process_group.check_shared_folder(plan.folder, config.timeout)
    newest = None
    if rank == 0:
        needs_words = bool(config.words or config.save_at_words)
        newest = extending.find_newest(plan.folder, plan.first_steps, data, needs_words, store.fetch)
    store.upload(beat)  # other nodes fetch what this one may have alone
    sent = process_group.gather(newest and (str(newest[0]), dataclasses.asdict(newest[1])))[0]
    if sent is None:
        return None
    path, state = Path(sent[0]), State(**sent[1])
    store.fetch(path.relative_to(plan.out))
    if state.data != data:
        raise InputError(
            f"trained on other shards than those now in {', '.join(config.data.folders)}; restore them, or retrain "
            f"{BY_FORCE}",
            "data",
            path=path,
        )
    return path, state
