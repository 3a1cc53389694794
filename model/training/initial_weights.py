"""Where weights come from: a run of ours, one checkpoint of it, or anybody's BERT."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from model.config import ModelConfig
from model.huggingface import bert_format
from model.training import checkpoint
from model.training.checkpoint import State
from pipeline.common.errors import ConfigError, InputError


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


def start(folder: Path | str, config: ModelConfig) -> Source:
    """A model to start training from; rank 0 says what was made up or left out.

    Raises:
        InputError: they are of another size.
    """
    source = read(folder)
    keys = ["architecture", "layers", "hidden", "heads", "feed_forward", "vocab_size"]
    # Learned positions are parameters; of rotary ones there may be more than before.
    keys += ["positions"] if config.architecture == "bert" else ["global_every", "local_window"]
    for key in keys:
        if getattr(source.config, key) != getattr(config, key):
            raise InputError(
                f"start={folder}: {key} is {getattr(source.config, key)} there, "
                f"{getattr(config, key)} here"
            )
    if os.environ.get("RANK", "0") == "0":
        for note in source.notes:
            print(f"start: {note}", flush=True)
    return source
