"""Floating-point operations of a model: the numerator of model FLOP/s utilisation (MFU)."""

import numpy as np
import numpy.typing as npt

from model.config import ModelConfig

MASKED = 0.15  # the share of positions that the published count assumes


def of_sequences(
    config: ModelConfig, lengths: npt.ArrayLike, masked_share: float = MASKED
) -> float:
    """Return the operations to train on sequences of these lengths, forward and backward.

    The published count for BERT: 72 L H^2 t + 12 L H t^2 + 6 (H V + H^2) m t for a sequence of t
    real tokens, of which a share m is masked; L layers, H hidden, V vocabulary. It assumes a
    feed-forward size of 4 H; here that part, 48 L H^2 t, is 12 L H F t with the model's own F.
    Padding and recomputation do not count.

    A gated unit counts 1.5 times its F. A local layer counts the pairs of tokens within each
    other's window instead of t^2.
    """
    layers, hidden, wide = config.layers, config.hidden, config.feed_forward
    modern = config.architecture == "modernbert"
    assert config.vocab_size is not None
    token: float = 24 * layers * hidden**2 + (18 if modern else 12) * layers * hidden * wide
    token += 6 * (hidden * config.vocab_size + hidden**2) * masked_share
    count = np.asarray(lengths, np.float64)
    pairs = layers * (count**2).sum()
    if modern:
        local = layers - -(-layers // config.global_every)
        hidden_from = np.maximum(count - 1 - config.local_window // 2, 0)  # tokens, at most
        pairs -= local * (hidden_from * (hidden_from + 1)).sum()
    return float(token * count.sum() + 12 * hidden * pairs)
