"""What a model costs: parameters, operations, and memory in training; without PyTorch.

Memory is what `micro_batch=auto` plans with. Counted is what the forward pass keeps for the
backward pass, without attention's scores (flash attention keeps none), and what each parameter has
next to it. `s` is the size of a number: 2 bytes in half precision, 4 in fp32. Compiled layers keep
less, so the count is from above.

Shapes: H hidden, F feed-forward, N heads, V vocabulary.
"""

import math
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from model.config import ModelConfig, TrainConfig
from pipeline.common.tables import read_table

MASKED = 0.15  # the share of positions that the published count of operations assumes
GIB = 2**30
SHARE = 0.9  # of a device's memory that is planned with
APART = 1.5 * GIB  # CUDA's context, cuBLAS, NCCL, and pieces of losses in fp32
ENOUGH = 65_536  # tokens, from which on more at a time gain nothing on the largest GPU
ON_A_CPU = 4096  # tokens: more leave its caches


def peaks() -> dict[str, float]:
    """Return the published TFLOP/s by device."""
    return dict(read_table(__file__, "cost.yaml"))


def published_peak(name: str) -> float | None:
    """Return the published figure of a device by its name; None where it is unknown."""
    return next((figure for pattern, figure in peaks().items() if re.search(rf"\b{pattern}\b", name)), None)


def parameters(model: ModelConfig) -> int:
    """Return the number of parameters, to within those of norms and biases."""
    traits = model.traits
    layer = 4 * model.hidden**2 + (2 + traits.gated) * model.hidden * model.feed_forward
    words = model.entries + traits.learned_positions * model.positions
    heads = (1 + traits.sentence_pairs) * model.hidden**2
    return model.layers * layer + words * model.hidden + heads


def flops(config: ModelConfig, lengths: npt.ArrayLike, masked_share: float = MASKED) -> float:
    """Return the operations to train on sequences of these lengths, forward and backward.

    The published count for BERT: 72 L H^2 t + 12 L H t^2 + 6 (H V + H^2) m t for a sequence of t
    real tokens, of which a share m is masked; L layers, H hidden, V vocabulary. It assumes a
    feed-forward size of 4 H; here that part, 48 L H^2 t, is 12 L H F t with the model's own F.
    Padding and recomputation do not count; those rows of the last layer that are not read do.

    A gated unit counts 1.5 times its F. A local layer counts the pairs of tokens within each
    other's window instead of t^2.
    """
    layers, hidden, wide = config.layers, config.hidden, config.feed_forward
    token: float = 24 * layers * hidden**2 + 6 * (2 + config.traits.gated) * layers * hidden * wide
    token += 6 * (hidden * config.entries + hidden**2) * masked_share
    count = np.asarray(lengths, np.float64)
    pairs = layers * (count**2).sum()
    if config.traits.local_layers:
        local = layers - -(-layers // config.global_every)
        hidden_from = np.maximum(count - 1 - config.local_window // 2, 0)  # tokens, at most
        pairs -= local * (hidden_from * (hidden_from + 1)).sum()
    return float(token * count.sum() + 12 * hidden * pairs)


@dataclass(frozen=True)
class Setting:
    """What of a run decides how much memory it takes."""

    model: ModelConfig
    size: int  # bytes of a number: 2 in bf16 and fp16
    recompute: bool
    mask_share: float  # of the tokens that the masked-LM head reads
    stage: int  # of ZeRO
    ranks: int
    offload: bool = False  # the optimizer is in host memory
    average: bool = False  # the optimizer keeps one of the weights

    @classmethod
    def of(cls, config: TrainConfig, model: ModelConfig, ranks: int) -> "Setting":
        """Return what counts of a configuration."""
        zero = config.deepspeed.get("zero_optimization", {})
        return cls(
            model,
            4 if config.precision == "fp32" else 2,
            config.compute.recompute,
            max(config.objective.mask_shares),
            zero.get("stage", 0),
            ranks,
            offload="offload_optimizer" in zero,
            average=config.ema is not None,
        )


def layer_bytes(model: ModelConfig, size: int) -> float:
    """Return the bytes a token that one layer keeps.

    BERT: its input, queries, keys and values, what attention mixed, two sums and one output of
    layer norms (8 H), both sides of the activation (2 F), two dropout masks of one byte, and sums
    of rows. Rotary positions turn queries and keys (2 H more); a gated unit keeps four times F.
    """
    wide, widest = model.hidden, model.feed_forward
    rows = 4 * model.heads + 16
    turned = 0 if model.traits.learned_positions else 2 * wide
    kept, masks = 2 * widest, 2 * wide * (model.dropout > 0)
    if model.traits.gated:
        kept, masks = 4 * widest, wide * (model.attention_dropout > 0) + widest * (model.dropout > 0)
    return size * (8 * wide + turned + kept) + masks + rows


def token_bytes(setting: Setting) -> float:
    """Return the bytes a token that all layers, the embeddings and the head keep."""
    model, size = setting.model, setting.size
    each = layer_bytes(model, size)
    layers = model.layers * each
    if setting.recompute:  # of each layer its input, and one layer whole
        layers = model.layers * model.hidden * size + each
    embeddings = 24 + model.hidden * (size + (model.dropout > 0))
    head = setting.mask_share * size * (model.entries + 4 * model.hidden)
    return layers + embeddings + head


def state_bytes(setting: Setting) -> float:
    """Return the bytes that weights, gradients and the optimizer take, whatever the batch.

    Passes use weights and gradients of the size of a number; at stage 1 gradients in half precision
    have sums in fp32 next to them. ZeRO divides the fp32 weights, their gradients and two moments
    by the ranks, from stage 2 on gradients, from stage 3 on weights.
    """
    ranks = setting.ranks
    weights = setting.size / (ranks if setting.stage >= 3 else 1)
    gradients = setting.size / (ranks if setting.stage >= 2 else 1)
    if setting.size == 2 and setting.stage == 1:
        gradients += 4.0
    optimizer = 8.0 if setting.stage == 0 else 16.0 / ranks
    if setting.average:
        optimizer += 4.0 / (1 if setting.stage == 0 else ranks)
    if setting.offload:
        optimizer = 0.0
    return parameters(setting.model) * (weights + gradients + optimizer)


def micro_batch(config: TrainConfig, ranks: int, tokens: int, length: float) -> int:
    """Return the samples that a rank learns from at a time: as set, else as many as `tokens` allow."""
    most = config.micro_batch if isinstance(config.micro_batch, int) else int(tokens // length)
    return min(math.ceil(config.batch_size / ranks), most)


def tokens_on_a_cpu(model: ModelConfig) -> int:
    """Return how many tokens a CPU learns from at a time."""
    return max(ON_A_CPU, model.positions)


def tokens_that_fit(setting: Setting, memory: float) -> int:
    """Return how many tokens a device of `memory` bytes can learn from at a time; 0: none."""
    # Backward makes gradients of the widest pieces of a layer while all is still kept.
    passing = setting.size * (4 * setting.model.hidden + 2 * setting.model.feed_forward)
    room = SHARE * memory - APART - state_bytes(setting)
    return min(ENOUGH, max(0, math.floor(room / (token_bytes(setting) + passing))))
