"""A trained checkpoint -> a folder that Hugging Face's library opens, with the same logits.

    python -m pipeline.convert train=FOLDER vocab=FOLDER out=FOLDER

PyTorch and the model are imported once work starts, so that `--help` answers at once.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import entry, stage
from pipeline.config import ConvertConfig
from pipeline.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from model.batch import Batch
    from model.config import ModelConfig

TOLERANCE = 1e-5  # of a logit; both sides compute in double precision


def make(config: ConvertConfig, out: Path) -> stage.Result:
    """Write the folder, open it again with transformers and compare.

    Raises:
        InputError: the vocabulary is not the checkpoint's.
    """
    from model import checkpoint, huggingface, vocabulary

    stage.need(config.vocab, "vocab", "vocab")
    model, state, info = checkpoint.read_model(config.train)
    vocab = Path(config.vocab)
    vocabulary.fits(model, len(vocabulary.read(vocab)[1]), vocab)
    digest = stage.sha256(vocab / vocabulary.TOKENIZER)
    if info.get("tokenizer", digest) != digest:
        raise InputError(
            f"vocab={vocab}: not the vocabulary that {config.train} was trained with, though of "
            f"the same size"
        )
    huggingface.save(out, model, state, vocab, histories(config))
    parameters = sum(tensor.numel() for tensor in state.values())
    summary = f"{model.name}, {parameters:,} parameters, step {info['step']:,}"
    figures = {"parameters": parameters, "step": info["step"], "model": model.name}
    if config.check:
        difference = compare(out, model, state)
        if not difference <= TOLERANCE:
            raise RuntimeError(
                f"logits differ by {difference:.1e} once transformers has opened the folder, over "
                f"{TOLERANCE:.0e}: the conversion is wrong"
            )
        summary += f", logits equal within {difference:.1e}"
        figures["largest_logit_difference"] = difference
    return stage.Result(summary=summary, figures=figures)


def histories(config: ConvertConfig) -> Iterator[stage.Manifest]:
    """The manifests of the training and of its data, as far as they are there."""
    place = Path(config.train)
    for folder in (place, *place.parents[:3]):  # a checkpoint lies some levels below its run
        manifest = stage.Manifest.read(folder)
        if manifest is not None and manifest.stage == "train":
            yield manifest
            data = stage.Manifest.read(manifest.config["data"]["dir"])
            if data is not None and data.stage == "prepare":
                yield data
            return


def compare(folder: Path, config: "ModelConfig", state: "dict[str, Tensor]") -> float:
    """The largest difference of any logit between our model and the folder, opened anew.

    Double precision leaves no room for rounding, so whatever differs is a mistake.
    """
    import torch
    from transformers import BertForPreTraining as Theirs

    from model.bert import BertForPreTraining

    batch = random_batch(config)
    with torch.device("meta"):
        ours = BertForPreTraining(config)
    ours.load_state_dict(state, assign=True)
    lengths = batch.cu_seqlens.diff()  # (B,)
    real = torch.arange(batch.max_length) < lengths[:, None]  # (B, L)

    def pad(x: "Tensor") -> "Tensor":  # (T,) -> (B, L)
        return torch.zeros(real.shape, dtype=x.dtype).masked_scatter(real, x)

    with torch.no_grad():
        masked, pairs = ours.double().eval()(batch)
        theirs = Theirs.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
        found = theirs.eval()(
            input_ids=pad(batch.input_ids),
            token_type_ids=pad(batch.segment_ids),
            attention_mask=real.long(),
        )
        read = found.prediction_logits[real][batch.masked_positions]
        apart = (masked - read, pairs - found.seq_relationship_logits)
    return max(float(difference.abs().max()) for difference in apart)


def random_batch(config: "ModelConfig") -> "Batch":
    """Sequences of several lengths, the longest possible among them, of random tokens."""
    import torch

    from model.batch import Batch

    assert config.vocab_size is not None
    longest = config.positions
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


def main() -> None:
    """The command."""
    entry.run("convert", ConvertConfig, lambda config: stage.run("convert", config, make))


if __name__ == "__main__":
    main()
