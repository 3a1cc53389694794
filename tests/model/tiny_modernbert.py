"""A ModernBERT of a few thousand parameters, in our form and in transformers'."""

import torch
from transformers import ModernBertConfig, ModernBertForMaskedLM

from model.encoders.architectures import build_model
from model.huggingface.names import NAMES
from tests.model.sizes import small
from tests.model.tiny_bert import WORDS

SIZES = {"layers": 5, "feed_forward": 24, "positions": 64, "local_window": 8, "global_every": 2}
ANGLES = {"rotary_local": 100.0, "rotary_global": 900.0, "initializer_range": 0.2, "layer_norm_epsilon": 1e-5}
CONFIG = small(len(WORDS), architecture="modernbert", dropout=0.0, attention_dropout=0.0, **SIZES, **ANGLES)


def our_state(config=CONFIG):
    """Random weights, always the same."""
    torch.manual_seed(0)
    return build_model(config).state_dict()


def their_model():
    """Made and drawn by transformers alone."""
    torch.manual_seed(1)
    said = {theirs: getattr(CONFIG, ours) for ours, theirs in NAMES["modernbert"].sizes.items()}
    special = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    angles = {"global_attn_every_n_layers": 2, "global_rope_theta": 900.0, "local_rope_theta": 100.0}
    config = ModernBertConfig(**said, **special, **angles)
    return ModernBertForMaskedLM(config).eval()
