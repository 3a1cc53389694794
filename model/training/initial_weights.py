"""Where weights come from: a run of ours, one checkpoint of it, or anybody's BERT."""

import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from model.config import AUTO, SHAPE, ModelConfig, TrainConfig
from model.huggingface import bert_format
from model.training import checkpoint
from model.training.checkpoint import State
from pipeline.common.errors import ConfigError, InputError
from pipeline.tokenization.wordpiece import WordPiece

ARCHITECTURE = ("architecture", "global_every", "local_window")  # keys that change what is computed


@dataclass(frozen=True)
class Source:
    """A model as it was found."""

    config: ModelConfig
    state: dict[str, Tensor]  # fp32, our names
    notes: list[str] = field(default_factory=list)  # what was made up or left out
    steps: list[int] = field(default_factory=list)  # of our checkpoints: those averaged
    last: tuple[Path, State] | None = None  # of these checkpoints the last

    @property
    def tokenizer(self) -> str | None:
        """The sha256 of the tokenizer.json it was trained with; None where that is unknown."""
        return self.last[1].tokenizer if self.last else None

    def checkpoint(self) -> tuple[Path, State]:
        """Our checkpoint that the weights are of, for what else is in it.

        Raises:
            InputError: it is another's model.
        """
        if self.last is None:
            raise InputError("start_optimizer=true: start= is a model alone, not a run of ours")
        return self.last


def read(place: Path | str, average: int = 1) -> Source:
    """The model at `place`: a train folder, one checkpoint of it, or a Hugging Face folder.

    With `average`, the mean of the weights of that many checkpoints, this one the last.

    Raises:
        InputError: there is no model, or no so many checkpoints.
        ConfigError: an average of what is no run of ours.
    """
    if is_foreign(place):
        if average > 1:
            raise ConfigError(
                f"average={average}: {place} is one model; only checkpoints of a run are averaged"
            )
        return Source(*bert_format.load(place))
    graphs = sorted(Path(place).glob("*.ckpt.index"))
    if graphs:
        raise InputError(
            f"{graphs[0]}: a TensorFlow checkpoint, which only TensorFlow reads; take the model "
            f"in Hugging Face's format (Google's are on the hub, below google-bert and google)"
        )
    last = path, state = checkpoint.locate(Path(place))
    weights, steps = checkpoint.average(path, state, average)
    return Source(ModelConfig(**state.model), weights, [], steps, last)


def is_foreign(place: Path | str) -> bool:
    """Whether a folder is in the Hugging Face format, not one of a run."""
    return (Path(place) / bert_format.CONFIG).is_file()


def size_of(place: Path | str) -> ModelConfig:
    """Return the size of the model at `place`; of a Hugging Face folder no weights are read.

    Raises:
        InputError: there is no model.
    """
    if is_foreign(place):
        return bert_format.our_config(Path(place), bert_format.read_config(place))
    return ModelConfig(**checkpoint.locate(Path(place))[1].model)


def fitted(config: TrainConfig, wordpiece: WordPiece, length: int) -> ModelConfig:
    """Return the model's size with the tokenizer's vocabulary, and what `start` is to give of it.

    Raises:
        ConfigError: sequences longer than the model's positions, or a vocabulary too small.
        InputError: there is no model in `start`, where the size is to come from there.
    """
    model = config.model
    if model.name == AUTO and config.start is not None:
        there = size_of(config.start)
        model = replace(model.filled(there), layer_norm_epsilon=there.layer_norm_epsilon)
        model = replace(model, **architecture_of(there, model))
        if config.objective.next_sentence and model.architecture != "bert":
            raise ConfigError(
                f"objective.next_sentence=true: {config.start} is a {model.architecture}, which "
                "judges no pairs of sentences; add objective=modern",
                key="objective.next_sentence",
            )
    if length > model.positions:
        raise ConfigError(
            f"{', '.join(config.data.folders)}: sequences of {length} tokens, but model.positions="
            f"{model.positions}",
            key="model.positions",
        )
    size = model.vocab_size or wordpiece.size
    if size != wordpiece.size:
        raise ConfigError(
            f"model.vocab_size={size}: the tokenizer has {wordpiece.size} entries",
            key="model.vocab_size",
        )
    return replace(model, vocab_size=size, name=model.size_name)


def architecture_of(there: ModelConfig, here: ModelConfig) -> dict[str, Any]:
    """Return what makes the architecture of a model, but for what is set otherwise here."""
    defaults = {one.name: one.default for one in fields(ModelConfig)}
    keys = (*ARCHITECTURE, "rotary_local", "rotary_global", "classifier_pooling")
    return {key: getattr(there, key) for key in keys if getattr(here, key) == defaults[key]}


def check_size(folder: Path | str, there: ModelConfig, here: ModelConfig) -> None:
    """Check that a model to start from is of the size that is asked for.

    Raises:
        InputError: it is not; the message has every key to set.
    """
    # Learned positions are parameters; of rotary ones there may be more than before.
    fixed = (*SHAPE, "positions") if here.architecture == "bert" else (*SHAPE, *ARCHITECTURE)
    fixed = ("architecture", *fixed) if "architecture" not in fixed else fixed
    differ = [key for key in fixed if getattr(there, key) != getattr(here, key)]
    if differ:
        keys = " ".join(f"model.{key}={getattr(there, key)}" for key in fixed)
        raise InputError(
            f"start={folder}: a model of {there.layers} layers x {there.hidden}, not of the size "
            f"that is set ({', '.join(differ)} differ); add model=auto, which takes the size from "
            f"there, or {keys}",
            key=f"model.{differ[0]}", path=folder,
        )  # fmt: skip
    if there.vocab_size != here.vocab_size:
        raise InputError(
            f"start={folder}: its vocabulary has {there.vocab_size:,} entries, that of data.vocab "
            f"{here.vocab_size:,}; python -m pipeline.convert train={folder} vocab=FOLDER makes a "
            "start of both where the second goes on from the first",
            key="start", path=folder,
        )  # fmt: skip


def start(folder: Path | str, config: ModelConfig) -> Source:
    """Return a model to start training from; rank 0 says what was made up or left out.

    Raises:
        InputError: it is of another size, or some of its weights are not finite.
    """
    source = read(folder)
    check_size(folder, source.config, config)
    broken = [name for name, tensor in source.state.items() if not tensor.isfinite().all()]
    if broken:
        raise InputError(
            f"start={folder}: {broken[0]} has values that are not finite (NaN or infinite), in "
            f"{len(broken)} of {len(source.state)} tensors; take another checkpoint or model",
            key="start", path=folder,
        )  # fmt: skip
    if os.environ.get("RANK", "0") == "0":
        for note in source.notes:
            print(f"start: {note}", flush=True)
    return source
