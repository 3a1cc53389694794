"""The logits of a model: ours, and those that transformers computes with its folder."""

from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers.utils import logging

from model.config import ModelConfig, Weights
from model.encoders.architectures import model_with
from model.encoders.batch import Batch
from model.huggingface import bert_format


def compare(folder: Path, config: ModelConfig, state: Weights) -> float:
    """Return the largest difference of any logit between our model and the folder, loaded again.

    In double precision rounding is negligible, so any larger difference is a mistake.
    """
    batch = random_batch(config, folder)
    our = ours(config, state, batch)
    their = theirs(folder, config, batch, torch.float64)
    apart = [(one - other).abs().max() for one, other in zip(our, their, strict=False)]
    return float(torch.stack(apart).max())  # NaN if one is


def theirs(folder: Path, config: ModelConfig, batch: Batch, dtype: torch.dtype) -> list[Tensor]:
    """Return the logits that transformers computes with a folder: of tokens, and maybe of pairs."""
    names = bert_format.names_for(config)
    logging.disable_progress_bar()
    lengths = batch.cu_seqlens.diff()  # (B,)
    real = torch.arange(batch.max_length) < lengths[:, None]  # (B, L)

    def pad(x: Tensor) -> Tensor:  # (T,) -> (B, L)
        return torch.zeros(real.shape, dtype=x.dtype).masked_scatter(real, x)

    inputs = {"input_ids": pad(batch.input_ids), "attention_mask": real.long()}
    if config.traits.sentence_pairs:
        inputs["token_type_ids"] = pad(batch.segment_ids)
    with torch.no_grad():
        model = getattr(transformers, names.pretrained).from_pretrained(
            folder, dtype=dtype, attn_implementation=names.exact_attention
        )
        found = model.eval()(**inputs)
    pairs = getattr(found, "seq_relationship_logits", None)
    masked = (found.logits if pairs is None else found.prediction_logits)[real]
    masked = masked[batch.masked_positions]
    # Theirs pools [CLS] even if causal.
    return [masked] if pairs is None or config.causal else [masked, pairs]


def ours(config: ModelConfig, state: Weights, batch: Batch) -> list[Tensor]:
    """Return both logits of our model in double precision; its memory is freed on return."""
    masked, pairs = model_with(config, state).double()(batch)
    return [masked] if pairs is None else [masked, pairs]


def random_batch(config: ModelConfig, folder: Path) -> Batch:
    """Return random sequences for a folder's model, of several lengths, up to the maximum or beyond all local windows.

    Learned positions are all tested; rotary ones follow a formula and may span thousands of tokens.
    """
    longest = config.positions
    if config.traits.local_layers:
        longest = min(longest, 4 * config.local_window)
    lengths = [longest, max(longest // 2, 2), max(longest // 7, 2), 2]
    draw = torch.Generator().manual_seed(0)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0)
    tokens = int(cu_seqlens[-1])
    position_ids = torch.cat([torch.arange(length) for length in lengths])
    ends = torch.tensor(lengths).repeat_interleave(torch.tensor(lengths))
    ids = torch.randint(config.entries, (tokens,), generator=draw)
    if config.traits.after_padding:  # transformers counts no position for the padding's id
        pad = bert_format.read_config(folder)["pad_token_id"]
        ids = ids.masked_fill(ids == pad, pad - 1 if pad else 1)
    return Batch(
        input_ids=ids,
        segment_ids=(2 * position_ids >= ends).long(),
        position_ids=position_ids,
        cu_seqlens=cu_seqlens.int(),
        max_length=longest,
        masked_positions=position_ids.nonzero().flatten()[::3],
    )
