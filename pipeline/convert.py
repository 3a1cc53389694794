"""Conversion of a model to Hugging Face's format, with the same logits.

    python -m pipeline.convert train=FOLDER vocab=FOLDER out=FOLDER

The model is a checkpoint of ours or any other BERT: the folder is then a start for training, with
the original vocabulary (vocab=null) or an extension of it.

PyTorch and the model are imported when work starts, so that `--help` is fast.
"""

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from model.finetuning.features import TruncationConfig, frame, pieces
from model.training import provenance
from pipeline.cli import entry_point
from pipeline.common import counter_rng
from pipeline.common.schema import built
from pipeline.config import ConvertConfig, EvaluateConfig
from pipeline.console.formatting import pluralize
from pipeline.errors import BY_FORCE, ConfigError, InputError, UserError
from pipeline.evaluation.task_types import open_task_type, read_sides
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import MANIFEST, Manifest, Result, enclosing_manifest, require_manifest
from pipeline.records.metrics import Conversion
from pipeline.shards import Shard, open_folder
from pipeline.stages import fetch_inputs, stage
from pipeline.storage.checksums import sha256_of
from pipeline.storage.stores import hub
from pipeline.storage.strict_json import Json
from pipeline.tokenization.wordpiece import WordPiece

if TYPE_CHECKING:
    import torch

    from model.config import ModelConfig
    from model.huggingface import onnx_export
    from model.training.initial_weights import InitialWeights

TOLERANCE = 1e-5  # of a logit; both models compute in double precision
ROTATED = 1e-4  # the same where positions are rotations, which transformers computes in single precision
SAMPLES, ASKED = 3, 30  # held-out sentences that are shown, the surest of those that are filled in


def make(config: ConvertConfig, out: Path) -> Result:
    """Write the folder, or one of each checkpoint that `save_at_words` kept, named by millions of words.

    Raises:
        InputError: raised by `make_one`, or no checkpoint was kept so.
    """
    if config.checkpoints is None:
        made = make_one(config, out)
        return Result(summary=describe(made), figures=made.to_json())
    found = {}
    for name, path in list_milestones(find_checkpoints(config.train)).items():
        found[name] = make_one(replace(config, train=str(path), checkpoints=None), out / name)
    if not found:
        raise InputError(
            f"has no checkpoint of save_at_words; train again with that option (a finished training: {BY_FORCE}), or "
            "remove checkpoints",
            "train",
            config.train,
        )
    summary = f"{pluralize(len(found), 'checkpoint')}, {', '.join(found)}"
    return Result(summary=summary, figures=Conversion(checkpoints=found).to_json())


def make_one(config: ConvertConfig, out: Path) -> Conversion:
    """Write the folder of a model; return what is known of it.

    Raises:
        InputError: the model was not found, or the vocabulary is not the model's.
    """
    from model.finetuning import saved_model
    from model.huggingface import onnx_export, vocabulary
    from model.training import initial_weights

    for key, value in config.exports.items():
        onnx_export.check_installed(key, value)
    source = initial_weights.read(config.train, config.average, config.ema)
    source, vocab, added = add_vocabulary_rows(config, source)
    if config.exports and saved_model.is_tuned(Path(config.train)):
        return make_tuned(config, vocab, added, out)
    untrained = untrained_parts(config, source)
    texts = held_out_texts(config, vocab)
    samples = samples_of(source, vocab, config.examples, texts)
    example = next(iter([one["text"] for one in samples] or texts), None)
    difference = write_pretrained(config, source, vocab, example, untrained, out)
    noted = vocabulary.notes_on(out, vocab) if vocab == Path(config.train) else []
    return Conversion(
        model=source.config.size_name,
        parameters=sum(tensor.numel() for tensor in source.state.values()),
        step=source.steps[-1] if source.steps else None,
        tokens=source.last[1].tokens if source.last else None,
        words=source.last[1].words if source.last else None,
        averaged=source.steps,
        learnt=source.learnt,
        dtype=config.dtype,
        added_entries=added,
        notes=[*source.notes, *noted],
        samples=samples,
        largest_logit_difference=difference,
        **exported(config, out, source.config, None, untrained),
    )


def write_pretrained(
    config: ConvertConfig, source: "InitialWeights", vocab: Path, example: str | None, untrained: list[str], out: Path
) -> float:
    """Write the folder as transformers reads it, load it so and compare; return the largest difference of a logit.

    `example` is a text with a [MASK] for the card, `untrained` are the parts with random weights.
    """
    from model.encoders.device import TYPES
    from model.huggingface import bert_format, sentence_model, vocabulary

    dtype = TYPES[config.dtype]
    bert_format.save(
        out,
        source.config,
        source.state,
        vocab,
        provenance.weight_histories(config.train, source, config.ema),
        dtype=dtype,
        shard_bytes=config.shard_bytes,
        learnt=source.learnt,
        remarks=remarks_of(config, source, example, untrained),
        untrained=untrained,
    )
    sentence_model.copy(Path(config.train), out)
    difference = compare_logits(out, source, dtype)
    vocabulary.check_ids(out)
    return difference


def vocabulary_of(training: Path) -> Path:
    """Return the folder of the vocabulary of a training, or its own if that is not known."""
    made = provenance.training_of(training)
    return Path((made and made.config["data"].get("vocab")) or training)


def make_tuned(config: ConvertConfig, vocab: Path, added: int, out: Path) -> Conversion:
    """Write a fine-tuned model as it is, with its head, as ONNX: it would not be a start for training.

    Raises:
        ConfigError: its weights or its vocabulary were to be changed.
        InputError: raised by `saved_model.load`, and by `onnx_export.write`.
    """
    from model.finetuning import saved_model
    from model.huggingface import vocabulary

    if added or config.dtype != "fp32" or config.shard_bytes:
        key = "vocab" if added else "dtype" if config.dtype != "fp32" else "shard_bytes"
        raise ConfigError(f"{config.train} is fine-tuned, and exported as it is; leave out {key}", key)
    folder = Path(config.train)
    size, saved = saved_model.load(folder)
    saved_model.save(out, saved, size, vocab)
    vocabulary.check_ids(out)
    card = folder / "README.md"
    (out / "README.md").write_text(card.read_text(encoding="utf-8") if card.is_file() else f"# {folder.name}\n")
    return Conversion(
        model=size.size_name,
        parameters=sum(one.numel() for one in saved.model.parameters()),
        learnt=provenance.learnt(folder, size.positions),
        **exported(config, out, size, saved.model.config.kind, []),
    )


def exported(config: ConvertConfig, out: Path, size: "ModelConfig", head: str | None, untrained: list[str]) -> Json:
    """Write the folder's ONNX if it is wanted, and how to serve the folder into its card; return the figures.

    `head` is that of a fine-tuned model, `untrained` are the random parts of a pre-trained one.
    """
    from model.huggingface import model_card, onnx_export, sentence_model

    texts = texts_of(config, out, size.positions) if config.quantize else None
    try:
        figures = onnx_export.write(out, untrained, texts) if config.exports else {}
    except UserError as error:
        ((key, value),) = config.exports.items()
        raise error.but(key=key, value=value) from error
    vectors = size.causal or "masked_head" in untrained or (out / sentence_model.MODULES).exists()
    plain = "feature-extraction" if vectors else "fill-mask"
    model_card.add_serving(out, model_card.TASKS[head] if head else plain, size.architecture, figures)
    return figures


def texts_of(config: ConvertConfig, out: Path, positions: int) -> "onnx_export.Texts":
    """Return what int8 is compared on: of the evaluation or the training that made the model, or else random."""
    from model.huggingface import onnx_export

    wordpiece, made = WordPiece.load(out), enclosing_manifest(config.train)
    longest = min(onnx_export.LONGEST, positions)
    with contextlib.suppress(InputError, ValueError):  # the files are gone
        if made is not None and made.stage == "evaluate":
            return dev_texts(built(EvaluateConfig, made.config), wordpiece)
        if (folder := held_out_folder(config)) and (shards := open_folder(folder, "validation")):
            return shard_texts(shards, wordpiece, longest)
    usual = np.setdiff1d(np.flatnonzero(wordpiece.vocab), wordpiece.special_ids)
    texts = []
    for number in range(onnx_export.TEXTS):
        key = counter_rng.key(0, "int8 texts", number)
        places = 1 + np.arange(1 + int(counter_rng.integers(key, 0, longest - 3)))
        texts.append(frame(wordpiece, usual[counter_rng.integers(key, places, len(usual))], None))
    return onnx_export.Texts("random sequences of entries", texts)


def dev_texts(config: EvaluateConfig, wordpiece: WordPiece) -> "onnx_export.Texts":
    """Return the dev set that a model was scored on.

    Raises:
        InputError: its files are not there any more.
    """
    from model.huggingface import onnx_export

    kind, metric = open_task_type(config, config.task, wordpiece), config.task.metrics[0]
    _, dev = read_sides(kind, config.task, config.data, 1)

    def score(logits: list[Any]) -> float:
        return kind.score(dev, kind.decode(dev, logits))[metric]

    samples = list(zip(dev.samples.ids, dev.samples.second.tolist(), strict=True))
    return onnx_export.Texts(f"texts of the dev set of {config.task.name}", samples, f"dev {metric}", score=score)


def shard_texts(shards: list[Shard], wordpiece: WordPiece, longest: int) -> "onnx_export.Texts":
    """Return held-out texts of at most `longest` tokens, spread over the shards.

    Raises:
        InputError: they are of another vocabulary, as before an extension.
    """
    from model.huggingface import onnx_export

    if shards[0].info.vocab_size != wordpiece.size:
        raise InputError("are of another vocabulary", path=shards[0].path)
    every = [(shard, row) for shard in shards for row in range(shard.rows)]
    texts = []
    order = counter_rng.permutation(counter_rng.key(0, "int8 texts"), len(every))
    for shard, row in (every[place] for place in order[: onnx_export.MASKED_TEXTS]):
        ids, first = shard.ids(*shard.offsets[row : row + 2].tolist()).astype(np.int64), int(shard.a_len[row])
        parts = ids[:first], ids[first:] if first < len(ids) else None
        texts.append(frame(wordpiece, *next(pieces(wordpiece, *parts, TruncationConfig(longest)))))
    return onnx_export.Texts("held-out texts", texts, onnx_export.MASKED, wordpiece.mask)


def add_vocabulary_rows(config: ConvertConfig, source: "InitialWeights") -> "tuple[InitialWeights, Path, int]":
    """Return the model with rows for added entries, the vocabulary's folder, and their number.

    Raises:
        InputError: the vocabulary is neither the model's nor an extension of it.
    """
    from model.huggingface import vocabulary

    own, foreign = Path(config.train), source.last is None  # of no checkpoint of ours
    if config.vocab is None:
        if not vocabulary.exists(own):
            raise InputError(f"no vocabulary found in {own}; set vocab", "vocab", None, path=own)
        return source, own, 0
    require_manifest(config.vocab, "vocab", "vocab")
    vocab = Path(config.vocab)
    text, entries = vocabulary.read(vocab)
    if vocabulary.exists(before_in := own if foreign else vocabulary_of(own)):
        before, known = vocabulary.read(before_in)
        own_words = foreign or source.tokenizer == sha256_of(before)
        if own_words and entries[: len(known)] == known and len(entries) > len(known):
            size, state = vocabulary.extend_embeddings(source.config, source.state, before, entries)
            return replace(source, config=size, state=state), vocab, len(entries) - len(known)
        if entries != known and foreign:
            raise InputError(
                f"is not an extension of the vocabulary in {own}; set vocab=null for the original, or extend it with "
                f"python -m pipeline.vocab existing={own}",
                "vocab",
                vocab,
            )
    vocabulary.check_size(source.config, len(entries), vocab)
    if source.tokenizer not in (None, sha256_of(text)):
        raise InputError(
            f"is not the vocabulary that {own} was trained with, although both have {len(entries):,} entries; set "
            "vocab to that one",
            "vocab",
            vocab,
        )
    return source, vocab, 0


def held_out_texts(config: ConvertConfig, vocab: Path) -> dict[str, str]:
    """Return sentences with a [MASK] from the training's shards, if they are there, and the words that it hides."""
    from model.huggingface import mask_filling

    folder = held_out_folder(config)
    return mask_filling.examples(folder, WordPiece.load(vocab), ASKED) if folder else {}


def held_out_folder(config: ConvertConfig) -> str | None:
    """Return the folder with the held-out shards of the training, if it is known."""
    if (train := provenance.training_of(config.train)) is None:
        return None
    data = train.config["data"]
    return str((data.get("validation") or [data["dir"]])[0])


def samples_of(source: "InitialWeights", vocab: Path, typed: list[str], held_out: dict[str, str]) -> list[Json]:
    """Return what the model fills into texts, if it can: those typed, else those of which it is surest."""
    from model.huggingface import mask_filling

    texts = typed or list(held_out)
    if not texts or not mask_filling.has_head(source.config, source.notes):
        return []
    filled = mask_filling.fill(source.config, source.state, WordPiece.load(vocab), texts, source.learnt)
    if typed:
        return filled
    filled.sort(key=lambda one: -one["masks"][0][0]["probability"])
    return [one | {"answer": held_out[one["text"]]} for one in filled[:SAMPLES]]


def untrained_parts(config: ConvertConfig, source: "InitialWeights") -> list[str]:
    """Return the parts of the model that have random weights, as no training has changed them."""
    from model.huggingface import bert_format

    untrained = {*bert_format.initialised_parts(source.notes)}  # all that is known of a foreign model
    untrained |= untrained_on_pairs(config.train) if source.last else set()
    return sorted(untrained & {name.partition(".")[0] for name in source.state})


def untrained_on_pairs(place: str) -> set[str]:
    """Return the parts that judge pairs if no training up to that at `place` was of pairs; what is not known was."""
    from model.huggingface import bert_format
    from model.training import initial_weights

    train = provenance.training_of(place)
    if train is None or train.config.get("objective", {}).get("next_sentence", True):
        return set()
    start, judges = train.config.get("start"), {"next_sentence", "pooler"}
    if start is None or not Path(start).exists():
        return judges
    if initial_weights.is_foreign(start):
        return judges & {*bert_format.initialised_parts(bert_format.load(start)[2])}
    return untrained_on_pairs(start)


def remarks_of(config: ConvertConfig, source: "InitialWeights", example: str | None, untrained: list[str]) -> Json:
    """Return the model card's remarks about the weights."""
    steps = [f"{step:,}" for step in source.steps]
    return {
        "license": config.license,
        "longest sequence": f"{source.learnt:,} tokens learnt, of {source.config.positions:,} positions",
        "example": example,
        "converted from": None if source.last else config.train,
        "weights": "moving average of the training" if config.ema else None,
        "mean of the weights after steps": ", ".join(steps) if len(steps) > 1 else None,
        "not trained, randomly initialised": ", ".join(untrained) or None,
        "stored as": None if config.dtype == "fp32" else config.dtype,
    }


def compare_logits(out: Path, source: "InitialWeights", dtype: "torch.dtype") -> float:
    """Return the largest difference of any logit, with our weights rounded to `dtype`.

    Raises:
        InputError: the folder's logits are not finite in the type that it is stored as.
        RuntimeError: the difference exceeds TOLERANCE, or ROTATED.
    """
    from model.huggingface import logits

    stored = logits.theirs(out, source.config, logits.random_batch(source.config, out), dtype)
    if not all(one.isfinite().all() for one in stored):
        raise InputError(
            f"the model's logits are not finite in {str(dtype).removeprefix('torch.')}, as of a training that "
            "diverged; use an earlier checkpoint, or another dtype",
            "train",
        )
    state = {name: tensor.to(dtype).float() for name, tensor in source.state.items()}
    difference = logits.compare(out, source.config, state)
    most = TOLERANCE if source.config.traits.learned_positions else ROTATED
    if not difference <= most:
        raise RuntimeError(
            f"logits of the folder loaded with transformers differ by {difference:.1e}, more than "
            f"{most:.0e}: the conversion is wrong"
        )
    return difference


def describe(made: Conversion) -> str:
    """Return the summary line: the model and what a user must know about it."""
    from model.huggingface import bert_format, model_card

    notes, steps = made.notes, made.averaged
    parts = [made.model, f"{made.parameters:,} parameters"]
    if steps:
        parts.append(f"step {steps[-1]:,}")
    if len(steps) > 1:
        parts.append(f"mean of {len(steps)} checkpoints")
    if made.added_entries:
        parts.append(f"{made.added_entries:,} entries added")
    if heads := bert_format.initialised_parts(notes):
        parts.append(f"missing and {bert_format.INITIALISED}: {' and '.join(heads)}")
    parts += [note for note in notes if not note.endswith(bert_format.INITIALISED)]
    if made.largest_logit_difference is not None:
        rounded = "" if made.dtype == "fp32" else f" to those of the weights in {made.dtype}"
        parts.append(f"logits equal within {made.largest_logit_difference:.1e}{rounded}")
    if made.largest_onnx_difference is not None:
        parts.append(f"in ONNX within {made.largest_onnx_difference:.1e}")
    if made.int8:
        parts.append(f"int8: {model_card.nearness(made.int8)}")
    return ", ".join(parts)


def milestone_name(mark: float) -> str:
    """Return the name of a checkpoint that was kept for its words, in millions of them."""
    return f"chck_{mark / 1e6:.12g}M"


def find_checkpoints(train: str) -> dict[int, Path]:
    """Return the checkpoints of a training by step.

    Raises:
        InputError: it has none.
    """
    last, _ = checkpoint_folder.locate(Path(train))
    return checkpoint_folder.steps(last.parent)


def list_milestones(every: dict[int, Path]) -> dict[str, Path]:
    """Return those of a training's checkpoints that `save_at_words` kept, by name."""
    marks = {path: checkpoint_folder.milestone_words(path) for path in every.values()}
    return {milestone_name(mark): path for path, mark in marks.items() if mark is not None}


def choose_revisions(train: str, wishes: list[str]) -> dict[str, Path]:
    """Return the checkpoints to push as revisions, by name.

    A wish is a name, step-1000 or chck_1M; or `marked`, those of save_at_words; or `all`.

    Raises:
        ConfigError: a checkpoint is missing.
        InputError: the training has no checkpoint.
    """
    every, chosen = find_checkpoints(train), dict[str, Path]()
    by_words, by_step = list_milestones(every), {f"step-{step}": path for step, path in every.items()}
    rest = {name: path for name, path in by_step.items() if path not in by_words.values()}
    known = by_step | by_words
    groups = {name: {name: path} for name, path in known.items()} | {"all": by_words | rest, "marked": by_words}
    for wish in wishes:
        if not groups.get(wish):
            raise ConfigError(f"{train} has no such checkpoint, only {', '.join(known)}", "push_revisions", wish)
        chosen |= groups[wish]
    return chosen


def push(config: ConvertConfig, name: str) -> None:
    """Upload the folder to the hub, into a private repository, and checkpoints as revisions of it.

    Raises:
        ConfigError: a chosen checkpoint is missing.
        InputError, Restart: the hub denies access, or does not answer.
    """
    folder = config.out
    if fetch_inputs.in_store(folder):
        folder = str(fetch_inputs.fetch_input(fetch_inputs.root_of(config.mirror), folder, "out"))
    revisions = dict[str, Path]()
    if config.push_revisions:
        config = fetch_inputs.localise("convert", config)
        revisions = choose_revisions(config.train, config.push_revisions)
    for revision, path in revisions.items():
        with tempfile.TemporaryDirectory(dir=Path(folder).parent, prefix=".push-") as made:
            one = Path(made, revision)
            one.mkdir()
            make_one(replace(config, train=str(path), checkpoints=None, average=1), one)
            print(f"convert: pushed to {hub.push(name, one, revision)}", flush=True)
    print(f"convert: pushed to {hub.push(name, Path(folder), ignore=[MANIFEST])}", flush=True)


def check_source(config: ConvertConfig) -> None:
    """Raise InputError if an unfinished training would replace a model that is there already.

    A checkpoint by its own path may: it is named.
    """
    unfinished = Manifest.read(config.train, of_input=True) is None
    if unfinished and fetch_inputs.list_checkpoints(config.train) and Manifest.read(config.out):
        raise InputError(
            f"this training is not finished, and out={config.out} has a model; finish it, name a checkpoint "
            "(train=FOLDER/checkpoints/RUN/step-N), or set another out",
            "train",
            config.train,
        )


def run(config: ConvertConfig, work: Callable[[ConvertConfig, Path], Result] = make) -> Manifest:
    """Make the folder with `work` unless it is up to date, and push it if `push` is set.

    Raises:
        InputError: the training is not finished, and the folder has the result of one that is.
    """
    check_source(config)
    made = stage.run("convert", config, work)
    if config.push is not None:
        push(config, config.push)
    return made


def main() -> None:
    """Run the command."""
    entry_point.run("convert", ConvertConfig, run)


if __name__ == "__main__":
    main()
