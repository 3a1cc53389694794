"""Conversion of a model to Hugging Face's format, with the same logits.

    python -m pipeline.convert train=FOLDER vocab=FOLDER out=FOLDER

The model is a checkpoint of ours or any other BERT: the folder is then a start for training, with
the original vocabulary (vocab=null) or an extension of it.

PyTorch and the model are imported when work starts, so that `--help` is fast.
"""

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.cli import entry_point
from pipeline.common import checkpoints
from pipeline.common.errors import ConfigError, InputError
from pipeline.common.figures import Conversion
from pipeline.common.formatting import pluralize
from pipeline.common.manifest import MANIFEST, Manifest, Result, require_manifest
from pipeline.common.stores import hub
from pipeline.config import ConvertConfig
from pipeline.stages import stage, store_inputs

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from model.config import ModelConfig
    from model.encoders.batch import Batch
    from model.training.initial_weights import Source

TOLERANCE = 1e-5  # of a logit; both models compute in double precision
SAMPLES = 3  # held-out texts to fill in


def make(config: ConvertConfig, out: Path) -> Result:
    """Write the folder, or one of each marked checkpoint.

    Raises:
        InputError: raised by `make_one` and `make_marked`.
    """
    return make_one(config, out) if config.checkpoints is None else make_marked(config, out)


def name_of_mark(mark: float) -> str:
    """Return the name of a checkpoint that was kept for its words, in millions of them."""
    return f"chck_{mark / 1e6:.12g}M"


def make_marked(config: ConvertConfig, out: Path) -> Result:
    """Write a folder of each checkpoint that `save_at_words` kept, named by millions of words.

    Raises:
        InputError: no checkpoint was kept so.
    """
    last, _ = checkpoints.locate(Path(config.train))
    marks = {checkpoints.mark_of(path): path for path in checkpoints.steps(last.parent).values()}
    found = {}
    for mark, path in marks.items():
        if mark is not None:
            name = name_of_mark(mark)
            alone = replace(config, train=str(path), checkpoints=None)
            found[name] = Conversion.from_json(make_one(alone, out / name).figures)
    if not found:
        raise InputError(
            "has no checkpoint of save_at_words; train again with that "
            "option (a finished training: with force=true), or remove checkpoints",
            "train",
            config.train,
        )
    summary = f"{pluralize(len(found), 'checkpoint')}, {', '.join(found)}"
    return Result(summary=summary, figures=Conversion(checkpoints=found).to_json())


def make_one(config: ConvertConfig, out: Path) -> Result:
    """Write the folder, load it with transformers and compare.

    Raises:
        InputError: the model was not found, or the vocabulary is not the model's.
    """
    import torch

    from model.huggingface import bert_format, onnx_export, sentence_model, vocabulary
    from model.training import history, initial_weights

    if config.onnx:
        onnx_export.check_installed()
    source = initial_weights.read(config.train, config.average, config.ema)
    if config.onnx and source.config.architecture != "bert":
        raise ConfigError(
            f"cannot be combined with architecture {source.config.architecture}; only bert is exported", "onnx", True
        )
    source, vocab, added = with_vocabulary(config, source)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[config.dtype]
    texts = held_out_texts(config, vocab)
    bert_format.save(
        out,
        source.config,
        source.state,
        vocab,
        history.of_weights(config.train, source, config.ema),
        dtype=dtype,
        shard_bytes=config.shard_bytes,
        remarks=remarks_of(config, source, texts),
    )
    sentence_model.copy(Path(config.train), out)
    samples = samples_of(source, vocab, list(config.examples) or texts)
    difference = checked(out, source, dtype) if config.check else None
    if config.check:
        vocabulary.check_ids(out)
    noted = vocabulary.notes_on(out, vocab) if config.check and vocab == Path(config.train) else []
    made = Conversion(
        model=source.config.size_name,
        parameters=sum(tensor.numel() for tensor in source.state.values()),
        step=source.steps[-1] if source.steps else None,
        tokens=source.last[1].tokens if source.last else None,
        words=source.last[1].words if source.last else None,
        averaged=source.steps,
        dtype=config.dtype,
        added_entries=added,
        notes=[*source.notes, *noted],
        samples=samples,
        largest_logit_difference=difference,
        largest_onnx_difference=onnx_export.write(out) if config.onnx else None,
    )
    return Result(summary=describe(made), figures=made.to_json())


def with_vocabulary(config: ConvertConfig, source: "Source") -> "tuple[Source, Path, int]":
    """Return the model with rows for added entries, the vocabulary's folder, and their number.

    Raises:
        InputError: the vocabulary is neither the model's nor an extension of it.
    """
    from model.huggingface import vocabulary
    from model.training import initial_weights

    own = Path(config.train)
    if config.vocab is None:
        if not vocabulary.exists(own):
            raise InputError(f"no vocabulary found in {own}; set vocab", "vocab", None, path=own)
        return source, own, 0
    require_manifest(config.vocab, "vocab", "vocab")
    vocab = Path(config.vocab)
    text, entries = vocabulary.read(vocab)
    rows = source.config.vocab_size
    if initial_weights.is_foreign(own) and vocabulary.exists(own):
        before, known = vocabulary.read(own)
        if entries[: len(known)] == known and len(entries) > len(known):
            size, state = vocabulary.extend_embeddings(source.config, source.state, before, entries)
            return replace(source, config=size, state=state), vocab, len(entries) - len(known)
        if entries != known:
            raise InputError(
                f"is not an extension of the vocabulary in {own}; set vocab=null for the original, or extend it with "
                f"python -m pipeline.vocab existing={own}",
                "vocab",
                vocab,
            )
    vocabulary.check_size(source.config, len(entries), vocab)
    if source.tokenizer not in (None, hashlib.sha256(text.encode()).hexdigest()):
        raise InputError(
            f"is not the vocabulary that {own} was trained with, although both have {rows:,} entries; set vocab to "
            "that one",
            "vocab",
            vocab,
        )
    return source, vocab, 0


def held_out_texts(config: ConvertConfig, vocab: Path) -> list[str]:
    """Return the beginnings of texts with a [MASK] from the training's shards, if they are there."""
    from model.huggingface import mask_filling
    from model.training import history
    from pipeline.tokenization.wordpiece import WordPiece

    for manifest in history.histories(config.train):
        if manifest.stage == "train":
            return mask_filling.examples(manifest.config["data"]["dir"], WordPiece.load(vocab), SAMPLES)
    return []


def samples_of(source: "Source", vocab: Path, texts: list[str]) -> list[dict[str, Any]]:
    """Return what the model fills into texts, if it can."""
    from model.huggingface import mask_filling
    from pipeline.tokenization.wordpiece import WordPiece

    if not texts or not mask_filling.has_head(source.config, source.notes):
        return []
    return mask_filling.fill(source.config, source.state, WordPiece.load(vocab), texts)


def remarks_of(config: ConvertConfig, source: "Source", texts: list[str]) -> dict[str, Any]:
    """Return the model card's remarks about the weights."""
    from model.huggingface import bert_format
    from model.training import initial_weights

    steps = [f"{step:,}" for step in source.steps]
    initialised = bert_format.initialised_parts(source.notes)
    return {
        "license": config.license,
        "example": texts[0] if texts else None,
        "converted from": config.train if initial_weights.is_foreign(config.train) else None,
        "weights": "moving average of the training" if config.ema else None,
        "mean of the weights after steps": ", ".join(steps) if len(steps) > 1 else None,
        "not trained, randomly initialised": ", ".join(initialised) or None,
        "stored as": None if config.dtype == "fp32" else config.dtype,
    }


def checked(out: Path, source: "Source", dtype: "torch.dtype") -> float:
    """Return the largest difference of any logit, with our weights rounded to `dtype`.

    Raises:
        InputError: the folder's logits are not finite in the type that it is stored as.
        RuntimeError: the difference exceeds TOLERANCE.
    """
    stored = their_logits(out, source.config, random_batch(source.config), dtype)
    if not all(logits.isfinite().all() for logits in stored):
        raise InputError(
            f"the model's logits are not finite in {str(dtype).removeprefix('torch.')}, as of a training that "
            "diverged; use an earlier checkpoint, or another dtype",
            "train",
        )
    state = {name: tensor.to(dtype).float() for name, tensor in source.state.items()}
    difference = compare(out, source.config, state)
    if not difference <= TOLERANCE:
        raise RuntimeError(
            f"logits of the folder loaded with transformers differ by {difference:.1e}, more than "
            f"{TOLERANCE:.0e}: the conversion is wrong"
        )
    return difference


def describe(made: Conversion) -> str:
    """Return the summary line: the model and what a user must know about it."""
    from model.huggingface import bert_format

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
        parts.append(f"logits equal within {made.largest_logit_difference:.1e}")
    if made.largest_onnx_difference is not None:
        parts.append(f"in ONNX within {made.largest_onnx_difference:.1e}")
    return ", ".join(parts)


def compare(folder: Path, config: "ModelConfig", state: "dict[str, Tensor]") -> float:
    """Return the largest difference of any logit between our model and the folder, loaded again.

    In double precision rounding is negligible, so any larger difference is a mistake.
    """
    import torch

    batch = random_batch(config)
    ours = our_logits(config, state, batch)
    theirs = their_logits(folder, config, batch, torch.float64)
    apart = [(one - other).abs().max() for one, other in zip(ours, theirs, strict=False)]
    return float(torch.stack(apart).max())  # NaN if one is


def their_logits(folder: Path, config: "ModelConfig", batch: "Batch", dtype: "torch.dtype") -> "list[Tensor]":
    """Return the logits that transformers computes with a folder: of tokens, and maybe of pairs."""
    import torch
    import transformers
    from transformers.utils import logging

    from model.huggingface import bert_format

    names = bert_format.names_for(config)
    logging.disable_progress_bar()
    lengths = batch.cu_seqlens.diff()  # (B,)
    real = torch.arange(batch.max_length) < lengths[:, None]  # (B, L)

    def pad(x: "Tensor") -> "Tensor":  # (T,) -> (B, L)
        return torch.zeros(real.shape, dtype=x.dtype).masked_scatter(real, x)

    inputs = {"input_ids": pad(batch.input_ids), "attention_mask": real.long()}
    if config.architecture == "bert":
        inputs["token_type_ids"] = pad(batch.segment_ids)
    with torch.no_grad():
        theirs = getattr(transformers, names.pretrained).from_pretrained(
            folder, dtype=dtype, attn_implementation=names.exact_attention
        )
        found = theirs.eval()(**inputs)
    pairs = getattr(found, "seq_relationship_logits", None)
    masked = (found.logits if pairs is None else found.prediction_logits)[real]
    masked = masked[batch.masked_positions]
    # Theirs pools [CLS] even if causal.
    return [masked] if pairs is None or config.causal else [masked, pairs]


def our_logits(config: "ModelConfig", state: "dict[str, Tensor]", batch: "Batch") -> "list[Tensor]":
    """Return both logits of our model in double precision; its memory is freed on return."""
    import torch

    from model.encoders.architectures import build_model

    with torch.device("meta"):
        ours = build_model(config)
    ours.load_state_dict(state, assign=True)
    with torch.no_grad():
        masked, pairs = ours.double().eval()(batch)
    return [masked] if pairs is None else [masked, pairs]


def random_batch(config: "ModelConfig") -> "Batch":
    """Return random sequences of several lengths, up to the maximum or beyond all local windows.

    Learned positions are all tested; rotary ones follow a formula and may span thousands of tokens.
    """
    import torch

    from model.encoders.batch import Batch

    assert config.vocab_size is not None
    longest = config.positions
    if config.architecture == "modernbert":
        longest = min(longest, 4 * config.local_window)
    lengths = [longest, max(longest // 2, 2), max(longest // 7, 2), 2]
    draw = torch.Generator().manual_seed(0)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0)
    tokens = int(cu_seqlens[-1])
    position_ids = torch.cat([torch.arange(length) for length in lengths])
    ends = torch.tensor(lengths).repeat_interleave(torch.tensor(lengths))
    return Batch(
        input_ids=torch.randint(config.vocab_size, (tokens,), generator=draw),
        segment_ids=(2 * position_ids >= ends).long(),
        position_ids=position_ids,
        cu_seqlens=cu_seqlens.int(),
        max_length=longest,
        masked_positions=position_ids.nonzero().flatten()[::3],
        masked_labels=torch.zeros(0, dtype=torch.long),
        next_sentence_labels=torch.zeros(len(lengths), dtype=torch.long),
    )


def _chosen(config: ConvertConfig) -> dict[str, Path]:
    """Return the checkpoints to push as revisions, by their names.

    A wish is a name, step-1000 or chck_1M; or `marked`, those of save_at_words; or `all`.

    Raises:
        ConfigError: a checkpoint is missing.
        InputError: the training has no checkpoint.
    """
    if not config.push_revisions:
        return {}
    train = Path(config.train)
    last, _ = checkpoints.locate(train)
    by_step, marked = dict[str, Path](), dict[str, Path]()
    for step, path in checkpoints.steps(last.parent).items():
        by_step[f"step-{step}"] = path
        if (mark := checkpoints.mark_of(path)) is not None:
            marked[name_of_mark(mark)] = path
    rest = {name: path for name, path in by_step.items() if path not in marked.values()}
    known, found = by_step | marked, dict[str, Path]()
    for wish in config.push_revisions:
        if wish == "all":
            found |= marked | rest
        elif wish == "marked" and marked:
            found |= marked
        elif wish in known:
            found[wish] = known[wish]
        else:
            raise ConfigError(f"{train} has no such checkpoint, only {', '.join(known)}", "push_revisions", wish)
    return found


def push(config: ConvertConfig, name: str) -> None:
    """Upload the folder to the hub, into a private repository, and checkpoints as revisions of it.

    Raises:
        ConfigError: a chosen checkpoint is missing.
        InputError, Restart: the hub denies access, or does not answer.
    """
    folder = config.out
    if store_inputs.in_store(folder):
        root = store_inputs.root_of(config.mirror)
        folder = str(store_inputs.fetch_input(root, folder, "out"))
    local = store_inputs.localised("convert", config) if config.push_revisions else config
    for revision, path in _chosen(local).items():
        with tempfile.TemporaryDirectory(dir=Path(folder).parent, prefix=".push-") as made:
            one = Path(made, revision)
            one.mkdir()
            make_one(replace(local, train=str(path), checkpoints=None, average=1), one)
            print(f"convert: pushed to {hub.push(name, one, revision)}", flush=True)
    address = hub.push(name, Path(folder), ignore=[MANIFEST])
    print(f"convert: pushed to {address}", flush=True)


def check_source(config: ConvertConfig) -> None:
    """Raise InputError if an unfinished training would replace a model that is there already.

    A checkpoint by its own path may: it is named.
    """
    unfinished = Manifest.read(config.train, of_input=True) is None
    if unfinished and store_inputs.steps_saved(config.train) and Manifest.read(config.out):
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
