"""A model -> a folder that Hugging Face's library opens, with the same logits.

    python -m pipeline.convert train=FOLDER vocab=FOLDER out=FOLDER

The model is a checkpoint of ours, or anybody's BERT: the folder is then a start for our training,
with the original vocabulary (vocab=null) or one that goes on from it.

PyTorch and the model are imported once work starts, so that `--help` answers at once.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.cli import entry_point
from pipeline.common.errors import ConfigError, InputError, first_line
from pipeline.common.formatting import pluralize
from pipeline.common.manifest import MANIFEST, Manifest, Result, require_manifest
from pipeline.config import ConvertConfig
from pipeline.stages import stage

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from model.config import ModelConfig
    from model.encoders.batch import Batch
    from model.training.initial_weights import Source

TOLERANCE = 1e-5  # of a logit; both sides compute in double precision


def make(config: ConvertConfig, out: Path) -> Result:
    """Write the folder, or one of each marked checkpoint.

    Raises:
        InputError: what `make_one` and `make_marked` say.
    """
    return make_one(config, out) if config.checkpoints is None else make_marked(config, out)


def make_marked(config: ConvertConfig, out: Path) -> Result:
    """Write a folder of each checkpoint that `save_at_words` kept, named by millions of words.

    Raises:
        InputError: no checkpoint was kept so.
    """
    from model.training import checkpoint

    last, _ = checkpoint.locate(Path(config.train))
    marks = {checkpoint.mark_of(path): path for path in checkpoint.steps(last.parent).values()}
    found = {}
    for mark, path in marks.items():
        if mark is not None:
            name = f"chck_{mark / 1e6:g}M"
            alone = replace(config, train=str(path), checkpoints=None)
            found[name] = make_one(alone, out / name).figures
    if not found:
        raise InputError(
            f"train={config.train}: no checkpoint of save_at_words there; train with it, or leave "
            "checkpoints away",
            key="checkpoints", path=config.train,
        )  # fmt: skip
    summary = f"{pluralize(len(found), 'checkpoint')}, {', '.join(found)}"
    return Result(summary=summary, figures={"checkpoints": found})


def make_one(config: ConvertConfig, out: Path) -> Result:
    """Write the folder, open it again with transformers and compare.

    Raises:
        InputError: there is no model, or the vocabulary is not the model's.
    """
    import torch

    from model.huggingface import bert_format, onnx_export, sentence_model
    from model.training import initial_weights

    if config.onnx:
        onnx_export.check_installed()
    source = initial_weights.read(config.train, config.average)
    if config.onnx and source.config.architecture != "bert":
        raise ConfigError(f"onnx=true: {source.config.architecture} is not exported, only bert is")
    source, vocab, added = with_vocabulary(config, source)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[config.dtype]
    bert_format.save(
        out, source.config, source.state, vocab, histories(config),
        dtype=dtype, shard_bytes=config.shard_bytes, remarks=remarks_of(config, source, vocab),
    )  # fmt: skip
    sentence_model.copy(Path(config.train), out)
    figures: dict[str, Any] = {
        "parameters": sum(tensor.numel() for tensor in source.state.values()),
        "step": source.steps[-1] if source.steps else None,
        "tokens": source.last[1].tokens if source.last else None,
        "words": source.last[1].words if source.last else None,
        "averaged": source.steps,
        "model": source.config.size_name,
        "dtype": config.dtype,
        "added_entries": added,
        "notes": source.notes,
    }
    if config.check:
        figures["largest_logit_difference"] = checked(out, source, dtype)
    if config.onnx:
        figures["largest_onnx_difference"] = onnx_export.write(out)
    return Result(summary=describe(figures), figures=figures)


def with_vocabulary(config: ConvertConfig, source: "Source") -> "tuple[Source, Path, int]":
    """The model, with rows for entries that its vocabulary had not; that folder; how many they are.

    Raises:
        InputError: the vocabulary is neither the model's nor one that goes on from it.
    """
    from model.huggingface import vocabulary
    from model.training import initial_weights

    own = Path(config.train)
    if config.vocab is None:
        if not vocabulary.exists(own):
            raise InputError(f"vocab=null: there is no vocabulary in {own}; set vocab")
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
                f"vocab={vocab}: its entries do not go on from those of {own}; vocab=null takes "
                f"the ones there, python -m pipeline.vocab existing={own} adds to them"
            )
    vocabulary.check_size(source.config, len(entries), vocab)
    if source.tokenizer not in (None, hashlib.sha256(text.encode()).hexdigest()):
        raise InputError(
            f"vocab={vocab}: not the vocabulary that {own} was trained with, though of the same "
            f"size of {rows:,} entries"
        )
    return source, vocab, 0


def example_of(config: ConvertConfig, vocab: Path) -> str | None:
    """Return a sentence of the training's shards with a [MASK]; None where they are not there."""
    from model.huggingface import card_example, vocabulary

    entries = vocabulary.read(vocab)[1]
    for manifest in histories(config):
        if manifest.stage == "train":
            return card_example.from_shards(manifest.config["data"]["dir"], entries)
    return None


def remarks_of(config: ConvertConfig, source: "Source", vocab: Path) -> dict[str, Any]:
    """Return what the model card says of the weights themselves."""
    from model.training import initial_weights

    steps = [f"{step:,}" for step in source.steps]
    drawn = sorted({note.partition(".")[0] for note in source.notes if "drawn anew" in note})
    return {
        "license": config.license,
        "example": example_of(config, vocab),
        "converted from": config.train if initial_weights.is_foreign(config.train) else None,
        "mean of the weights after steps": ", ".join(steps) if len(steps) > 1 else None,
        "not trained, drawn anew": ", ".join(drawn) or None,
        "stored as": None if config.dtype == "fp32" else config.dtype,
    }


def checked(out: Path, source: "Source", dtype: "torch.dtype") -> float:
    """The largest difference of any logit; what it compares is what `dtype` left of the weights.

    Raises:
        RuntimeError: it is too large.
    """
    state = {name: tensor.to(dtype).float() for name, tensor in source.state.items()}
    difference = compare(out, source.config, state)
    if not difference <= TOLERANCE:
        raise RuntimeError(
            f"logits differ by {difference:.1e} once transformers has opened the folder, over "
            f"{TOLERANCE:.0e}: the conversion is wrong"
        )
    return difference


def describe(figures: dict[str, Any]) -> str:
    """One line: what it is, and what a user must know of it."""
    notes, steps = figures["notes"], figures["averaged"]
    parts = [figures["model"], f"{figures['parameters']:,} parameters"]
    if steps:
        parts.append(f"step {steps[-1]:,}")
    if len(steps) > 1:
        parts.append(f"mean of {len(steps)} checkpoints")
    if figures["added_entries"]:
        parts.append(f"{figures['added_entries']:,} entries added")
    drawn = [note for note in notes if note.endswith("drawn anew")]
    if drawn:
        heads = sorted({note.partition(".")[0] for note in drawn})
        parts.append(f"drawn anew as it was not there: {' and '.join(heads)}")
    parts += [note for note in notes if note not in drawn]
    if "largest_logit_difference" in figures:
        parts.append(f"logits equal within {figures['largest_logit_difference']:.1e}")
    if "largest_onnx_difference" in figures:
        parts.append(f"in ONNX within {figures['largest_onnx_difference']:.1e}")
    return ", ".join(parts)


def histories(config: ConvertConfig) -> Iterator[Manifest]:
    """The manifests of the training and of its data, as far as they are there."""
    place = Path(config.train)
    for folder in (place, *place.parents[:3]):  # a checkpoint lies some levels below its run
        manifest = Manifest.read(folder)
        if manifest is not None and manifest.stage == "train":
            yield manifest
            data = manifest.config["data"]
            for shards in map(Manifest.read, [data["dir"], *data.get("more", [])]):
                if shards is not None and shards.stage == "prepare":
                    yield shards
            return


def compare(folder: Path, config: "ModelConfig", state: "dict[str, Tensor]") -> float:
    """The largest difference of any logit between our model and the folder, opened anew.

    Double precision leaves no room for rounding, so whatever differs is a mistake.
    """
    import torch
    import transformers
    from transformers.utils import logging

    from model.huggingface import bert_format

    names = bert_format.names_for(config)
    logging.disable_progress_bar()
    batch = random_batch(config)
    masked, pairs = our_logits(config, state, batch)
    lengths = batch.cu_seqlens.diff()  # (B,)
    real = torch.arange(batch.max_length) < lengths[:, None]  # (B, L)

    def pad(x: "Tensor") -> "Tensor":  # (T,) -> (B, L)
        return torch.zeros(real.shape, dtype=x.dtype).masked_scatter(real, x)

    inputs = {"input_ids": pad(batch.input_ids), "attention_mask": real.long()}
    if pairs is not None:
        inputs["token_type_ids"] = pad(batch.segment_ids)
    with torch.no_grad():
        theirs = getattr(transformers, names.pretrained).from_pretrained(
            folder, dtype=torch.float64, attn_implementation=names.exact_attention
        )
        found = theirs.eval()(**inputs)
        logits = found.logits if pairs is None else found.prediction_logits
        apart = [masked - logits[real][batch.masked_positions]]
        if pairs is not None and not config.causal:  # theirs reads [CLS] there too, which saw none
            apart.append(pairs - found.seq_relationship_logits)
    return max(float(difference.abs().max()) for difference in apart)


def our_logits(
    config: "ModelConfig", state: "dict[str, Tensor]", batch: "Batch"
) -> "tuple[Tensor, Tensor | None]":
    """Both logits of our model in double precision; it is gone before theirs is made."""
    import torch

    from model.encoders.architectures import build_model

    with torch.device("meta"):
        ours = build_model(config)
    ours.load_state_dict(state, assign=True)
    with torch.no_grad():
        masked, pairs = ours.double().eval()(batch)
    return masked, pairs


def random_batch(config: "ModelConfig") -> "Batch":
    """Sequences of several lengths of random tokens: the longest possible, or beyond all windows.

    Learned positions differ one by one; rotary ones do not, and may be of thousands of tokens.
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


def push(folder: str, name: str) -> None:
    """Upload the folder to the hub, into a repository that is private until its owner opens it.

    Raises:
        InputError: there is no network, or no right to write there.
    """
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        api.create_repo(name, private=True, exist_ok=True)
        place = api.upload_folder(repo_id=name, folder_path=folder, ignore_patterns=[MANIFEST])
    except Exception as error:  # those of its HTTP client too, which changes between releases
        raise InputError(
            f"push={name}: {first_line(error)}; {folder} is whole, log in with "
            f"`hf auth login` and start the same command again"
        ) from error
    print(f"convert: pushed to {place}", flush=True)


def run(config: ConvertConfig) -> None:
    """Make the folder unless it is there, and push it where that is asked for."""
    stage.run("convert", config, make)
    if config.push is not None:
        push(config.out, config.push)


def main() -> None:
    """The command."""
    entry_point.run("convert", ConvertConfig, run)


if __name__ == "__main__":
    main()
