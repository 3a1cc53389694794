"""Sources of initial weights: a run, one of its checkpoints, or a Hugging Face model."""

import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from model.config import AUTO, SHAPE, Json, ModelConfig, TrainConfig, Weights, check_length
from model.huggingface import bert_format, vocabulary
from model.optim.average import AVERAGE
from model.training import checkpoint, provenance
from pipeline.errors import ConfigError, InputError, named
from pipeline.records import checkpoint_folder
from pipeline.records.checkpoint_folder import Checkpoint
from pipeline.tokenization.wordpiece import WordPiece

COMPUTED, LAYERS = ("architecture", "activation"), ("global_every", "local_window")  # keys that change what is computed
# Keys that may differ from those of the start, as in an extension of the context.
CHOICES = ("rotary_local", "rotary_global", "layer_norm_epsilon", "classifier_pooling", "dropout", "attention_dropout")


@dataclass(frozen=True)
class InitialWeights:
    """Weights of a model and their origin."""

    config: ModelConfig
    state: Weights  # fp32, our names
    notes: list[str] = field(default_factory=list)  # initialised and ignored tensors
    steps: list[int] = field(default_factory=list)  # of our checkpoints that were averaged
    last: Checkpoint | None = None  # the last of these checkpoints
    learnt: int = 0  # tokens of the longest sequences that it has learnt

    @property
    def tokenizer(self) -> str | None:
        """Return the sha256 of the tokenizer.json it was trained with; None if unknown."""
        return self.last[1].tokenizer if self.last else None

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint of the weights, for its optimizer state.

        Raises:
            InputError: The weights are not from a checkpoint of ours.
        """
        if self.last is None:
            raise InputError(
                f"{named('start')}= must be a training folder, as a model folder has no optimizer state; set "
                f"{named('start_optimizer')}=false",
                "start_optimizer",
                True,
            )
        return self.last


def read(place: Path | str, average: int = 1, ema: bool = False) -> InitialWeights:
    """Read the model at `place`: a train folder, one of its checkpoints, or a Hugging Face folder.

    With `average`, the mean weights of that many checkpoints, of which this is the last; with
    `ema`, the moving average that training kept.

    Raises:
        InputError: No model was found, fewer than `average` checkpoints, or no moving average.
        ConfigError: `average` is set for a Hugging Face model.
    """
    if is_foreign(place):
        key, value, cure = ("ema", ema, "false") if ema else ("average", average, "1")
        if ema or average > 1:
            raise ConfigError(
                f"{place} is a single model; only checkpoints of a run have averages; set {named(key)}={cure}",
                key,
                value,
                path=place,
            )
        config, weights, notes, _ = bert_format.load(place)
        return InitialWeights(config, weights, notes, learnt=provenance.learnt(place, config.positions))
    graphs = sorted(Path(place).glob("*.ckpt.index"))
    if graphs:
        raise InputError(
            "TensorFlow checkpoints are not supported; use the model in Hugging Face format (Google's are on the "
            "hub, under google-bert and google)",
            path=graphs[0],
        )
    last = path, state = checkpoint_folder.locate(Path(place))
    config = ModelConfig(**state.model)
    weights, steps = checkpoint.average(path, state, 1 if ema else average)
    weights |= moving_average(path) if ema else {}
    return InitialWeights(config, weights, [], steps, last, provenance.learnt(path, config.positions))


def moving_average(path: Path) -> Weights:
    """Return the moving average of the weights in a checkpoint that are trained.

    Raises:
        InputError: It has none.
    """
    tensors = checkpoint.Tensors(path)
    names = sorted(name for key, name in tensors.moments if key == AVERAGE)
    if not names:
        raise InputError(
            f"contains no moving average of the weights; train with {named('ema')}=0.999, or set {named('ema')}=false",
            "ema",
            path=path,
        )
    return {name: tensors.moment(AVERAGE, name) for name in names}


def is_foreign(place: Path | str) -> bool:
    """Return whether a folder is in the Hugging Face format, not one of a run."""
    return (Path(place) / bert_format.CONFIG).is_file()


def size_of(place: Path | str) -> ModelConfig:
    """Return the size of the model at `place`, without reading Hugging Face weights.

    Raises:
        InputError: No model was found.
    """
    if is_foreign(place):
        folder, config = Path(place), bert_format.read_sizes(place)
        stored = sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".safetensors", ".bin"))
        bert_format.check_sizes(folder, config, stored or 2**30)
        return config
    return ModelConfig(**checkpoint_folder.locate(Path(place))[1].model)


def complete_size(config: TrainConfig, wordpiece: WordPiece, length: int) -> ModelConfig:
    """Return the model's size, completed from the tokenizer and, for model=auto, from `start`.

    Raises:
        ConfigError: Sequences are longer than the model's positions, or the vocabulary differs.
        InputError: The size is taken from `start`, which contains no model.
    """
    model = config.model
    initial = None if config.start is None else size_of(config.start)
    if model.name == AUTO and initial is not None:
        model = model.filled(initial)
        model = replace(model, layer_norm_epsilon=initial.layer_norm_epsilon, **architecture_of(initial, model))
        if config.objective.next_sentence and not model.traits.sentence_pairs:
            raise ConfigError(
                f"{config.start} is a {model.architecture}, which has no next-sentence head; add "
                f"{named('objective')}=modern",
                "objective.next_sentence",
                True,
            )
    if not model.positions:
        model = replace(model, positions=max(length, initial.positions if initial is not None else 0))
    rows = initial.positions if initial is not None and initial.traits.learned_positions else None
    check_length(model, length, config.data, start=rows)
    size = model.vocab_size or wordpiece.size
    if size != wordpiece.size:
        raise ConfigError(f"must be {wordpiece.size}, the tokenizer's size; unset it", "model.vocab_size", size)
    return replace(model, vocab_size=size, name=model.size_name)


def architecture_of(initial: ModelConfig, config: ModelConfig) -> Json:
    """Return the architecture keys of `initial` that have default values in `config`."""
    defaults = {one.name: one.default for one in fields(ModelConfig)}
    keys = (*COMPUTED, *LAYERS, "rotary_local", "rotary_global", "classifier_pooling")
    return {key: getattr(initial, key) for key in keys if getattr(config, key) == defaults[key]}


def check_size(folder: Path | str, initial: ModelConfig, config: ModelConfig) -> None:
    """Check that a model to start from has the configured size and vocabulary size.

    Raises:
        InputError: The sizes differ; the message lists every key to set.
    """
    # Learned positions are parameters; rotary ones may be extended.
    more = ("positions",) if config.traits.learned_positions else LAYERS
    fixed = (*COMPUTED, *SHAPE, *more)
    differ = [key for key in fixed if getattr(initial, key) != getattr(config, key)]
    if differ:
        keys = " ".join(f"model.{key}={getattr(initial, key)}" for key in fixed)
        raise InputError(
            f"a model of {initial.layers} layers x {initial.hidden} does not match the "
            f"configured size ({', '.join(differ)} differ); add model=auto to use its size, or set {keys}",
            "start",
            folder,
        )
    if initial.vocab_size != config.vocab_size:
        raise InputError(
            f"its vocabulary has {initial.vocab_size:,} entries, but data.vocab has {config.vocab_size:,}; if "
            f"data.vocab extends the model's, run python -m pipeline.convert train={folder} vocab=FOLDER out=START, "
            f"FOLDER that of data.vocab, and set {named('start')}=START",
            "start",
            folder,
        )


def check_vocabulary(folder: Path | str, source: InitialWeights, wordpiece: WordPiece) -> None:
    """Check that a model to start from was trained with the entries of the data's tokenizer.

    Raises:
        InputError: It was not, although both have as many.
    """
    if source.tokenizer is not None:
        same = source.tokenizer == wordpiece.sha256
    elif vocabulary.exists(Path(folder)):
        same = vocabulary.read(Path(folder))[1] == list(wordpiece.vocab)
    else:  # of weights alone nothing is known
        same = True
    if not same:
        raise InputError(
            f"was trained with another vocabulary than data.vocab, although both have {wordpiece.size:,} entries: "
            "every embedding would be another word's; make the shards with the model's own (vocab.existing)",
            "start",
            folder,
        )


def start(folder: Path | str, config: ModelConfig, wordpiece: WordPiece) -> InitialWeights:
    """Read the model to start training from; rank 0 prints its notes.

    Raises:
        InputError: The model has another size or vocabulary, or weights that are not finite.
    """
    source = read(folder)
    check_size(folder, source.config, config)
    check_vocabulary(folder, source, wordpiece)
    broken = [name for name, tensor in source.state.items() if not tensor.isfinite().all()]
    if broken:
        raise InputError(
            f"{len(broken)} of {len(source.state)} tensors contain NaN or infinite values, first {broken[0]}; use "
            "another checkpoint or model",
            "start",
            folder,
        )
    if source.config.causal and not config.causal:
        source.notes.append(
            f"{folder}: is causal, but trained with full attention here; set model.causal=true to keep it causal"
        )
    changed = [key for key in CHOICES if getattr(source.config, key) != getattr(config, key)]
    if changed:
        settings = ", ".join(f"model.{key}={getattr(config, key)}" for key in changed)
        keys = " ".join(f"model.{key}={getattr(source.config, key)}" for key in changed)
        source.notes.append(f"{folder}: continues with {settings}; to keep its own, set {keys}")
    if os.environ.get("RANK", "0") == "0":
        for note in source.notes:
            print(f"start: {note}", flush=True)
    return source
