"""How much memory training takes, and how many tokens fit at a time: `micro_batch=auto`.

Counted is what the forward pass keeps for the backward pass, without attention's scores (flash
attention keeps none), and what each parameter has next to it. `s` is the size of a number: 2 bytes
in half precision, 4 in fp32. Compiled layers keep less, so the count is from above.

Shapes: H hidden, F feed-forward, N heads, V vocabulary.
"""

import math
from dataclasses import dataclass

from model.config import ModelConfig

GIB = 2**30
SHARE = 0.9  # of a device's memory that is planned with
APART = 1.5 * GIB  # CUDA's context, cuBLAS, NCCL, and pieces of losses in fp32
ENOUGH = 65_536  # tokens, from which on more at a time gain nothing on the largest GPU
ON_A_CPU = 4096  # tokens: more leave its caches


@dataclass(frozen=True)
class Setting:
    """What of a run decides how much memory it takes."""

    model: ModelConfig
    half: bool  # bf16 or fp16
    recompute: bool
    mask_share: float  # of the tokens that the masked-LM head reads
    stage: int  # of ZeRO
    ranks: int
    offload: bool = False  # the optimizer is in host memory
    average: bool = False  # the optimizer keeps one of the weights


def layer_bytes(model: ModelConfig, size: int) -> float:
    """Return the bytes a token that one layer keeps.

    BERT: its input, queries, keys and values, what attention mixed, two sums and one output of
    layer norms (8 H), both sides of the activation (2 F), two dropout masks of one byte, and sums
    of rows. ModernBERT has turned queries and keys and normalised inputs too, and four times F.
    """
    wide, widest = model.hidden, model.feed_forward
    rows = 4 * model.heads + 16
    if model.architecture == "modernbert":
        masks = wide * (model.attention_dropout > 0) + widest * (model.dropout > 0)
        return size * (10 * wide + 4 * widest) + masks + rows
    masks = 2 * wide * (model.dropout > 0)
    return size * (8 * wide + 2 * widest) + masks + rows


def token_bytes(setting: Setting) -> float:
    """Return the bytes a token that all layers, the embeddings and the head keep."""
    model, size = setting.model, 2 if setting.half else 4
    each = layer_bytes(model, size)
    layers = model.layers * each
    if setting.recompute:  # of each layer its input, and one layer whole
        layers = model.layers * model.hidden * size + each
    embeddings = 24 + model.hidden * (size + (model.dropout > 0))
    assert model.vocab_size is not None
    head = setting.mask_share * size * (model.vocab_size + 4 * model.hidden)
    return layers + embeddings + head


def parameter_count(model: ModelConfig) -> int:
    """Return the number of parameters, to within those of norms and biases."""
    assert model.vocab_size is not None
    gated = 3 if model.architecture == "modernbert" else 2
    layer = 4 * model.hidden**2 + gated * model.hidden * model.feed_forward
    positions = model.positions if model.architecture == "bert" else 0
    return model.layers * layer + (model.vocab_size + positions) * model.hidden


def fixed_bytes(setting: Setting) -> float:
    """Return the bytes that weights, gradients and the optimizer take, whatever the batch.

    Passes use weights and gradients of the size of a number; at stage 1 gradients in half precision
    have sums in fp32 next to them. ZeRO divides the fp32 weights, their gradients and two moments
    by the ranks, from stage 2 on gradients, from stage 3 on weights.
    """
    size = 2 if setting.half else 4
    ranks = max(1, setting.ranks)
    weights = size / (ranks if setting.stage >= 3 else 1)
    gradients = size / (ranks if setting.stage >= 2 else 1)
    if setting.half and setting.stage == 1:
        gradients += 4.0
    optimizer = 8.0 if setting.stage == 0 else 16.0 / ranks
    if setting.average:
        optimizer += 4.0 / (1 if setting.stage == 0 else ranks)
    if setting.offload:
        optimizer = 0.0
    return parameter_count(setting.model) * (weights + gradients + optimizer) + APART


def tokens_that_fit(setting: Setting, memory: float) -> int:
    """Return how many tokens a device of `memory` bytes can learn from at a time; 0: none."""
    # Backward makes gradients of the widest pieces of a layer while all is still kept.
    size = 2 if setting.half else 4
    passing = size * (4 * setting.model.hidden + 2 * setting.model.feed_forward)
    room = SHARE * memory - fixed_bytes(setting)
    return min(ENOUGH, max(0, math.floor(room / (token_bytes(setting) + passing))))
