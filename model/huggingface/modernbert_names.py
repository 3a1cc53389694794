"""ModernBERT in Hugging Face format.

Hugging Face fuses the projections of queries, keys and values into one matrix; ours are separate.
The decoder is the word embeddings and not stored; its bias is.
"""

from typing import Any

import torch
from torch import Tensor

from model.config import ModelConfig
from model.huggingface.names import Names

PROJECTIONS = ("query", "key", "value")  # in the order of rows in the fused matrix
FUSED = ".attn.Wqkv.weight"
GLOBAL, LOCAL = "full_attention", "sliding_attention"
GLOBAL_BASE = 160_000.0  # of the rotary positions, if config.json has none
# Names in models without heads lack the prefix.
BARE = ("embeddings.", "layers.", "final_norm.")


def canonical(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add the prefix `model.`, and split the projections."""
    bare = not any(name.startswith("model.") for name in found)
    renamed: dict[str, Tensor] = {}
    for name, tensor in found.items():
        name = f"model.{name}" if bare and name.startswith(BARE) else name
        if name.endswith(FUSED) and not len(tensor) % 3:
            parts = zip(PROJECTIONS, tensor.chunk(3), strict=True)
            renamed |= {f"{name}.{part}": rows for part, rows in parts}
        else:
            renamed[name] = tensor
    return renamed


def pack(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Fuse the three projections."""
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        whole, _, part = name.rpartition(".")
        if not whole.endswith(FUSED):
            packed[name] = tensor
        elif part == PROJECTIONS[0]:
            packed[whole] = torch.cat([tensors[f"{whole}.{other}"] for other in PROJECTIONS])
    return packed


def settings(config: ModelConfig, entries: list[str]) -> dict[str, Any]:
    """Return positions and layers in the format of transformers 5 and of earlier versions."""
    first, last = entries.index("[CLS]"), entries.index("[SEP]")
    kinds = [LOCAL if n % config.global_every else GLOBAL for n in range(config.layers)]
    bases = {GLOBAL: config.rotary_global, LOCAL: config.rotary_local}
    return {
        "layer_types": kinds,
        "global_attn_every_n_layers": config.global_every,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
        "global_rope_theta": config.rotary_global,
        "local_rope_theta": config.rotary_local,
        "embedding_dropout": config.dropout,
        "classifier_dropout": config.dropout,
        "pad_token_id": entries.index("[PAD]"),
        "cls_token_id": first,
        "bos_token_id": first,
        "sep_token_id": last,
        "eos_token_id": last,
    }


def read(theirs: dict[str, Any]) -> dict[str, Any]:
    """Read the global layers and the rotary bases, in either format.

    Raises:
        ValueError: The layer order or the type of positions is not supported.
    """
    kinds, every = theirs.get("layer_types"), theirs.get("global_attn_every_n_layers", 3)
    if kinds is not None:
        if len(kinds) != theirs.get("num_hidden_layers"):
            raise ValueError(f"layer_types has {len(kinds)} entries, must have one for each layer")
        indices = [index for index, kind in enumerate(kinds) if kind == GLOBAL]
        every = indices[1] if len(indices) > 1 else max(len(kinds), 1)
        if kinds != [LOCAL if index % every else GLOBAL for index in range(len(kinds))]:
            raise ValueError(f"layer_types is {kinds}, must repeat one {GLOBAL} followed by a fixed number of {LOCAL}")
    found: dict[str, Any] = {"global_every": every}
    bases, scaling = theirs.get("rope_parameters") or {}, theirs.get("rope_scaling") or {}
    for ours, kind, old in (
        ("rotary_global", GLOBAL, "global_rope_theta"),
        ("rotary_local", LOCAL, "local_rope_theta"),
    ):
        rope = (bases.get(kind) or {}) | scaling
        if (form := rope.get("rope_type", rope.get("type", "default"))) != "default":
            raise ValueError(f"rope_type is {form}, must be default")
        base = rope.get("rope_theta", theirs.get(old))
        if base is None and ours == "rotary_local" and old in theirs:
            base = found.get("rotary_global", GLOBAL_BASE)  # as null meant before transformers 5
        if base is not None:
            found[ours] = float(base)
    return found


MODERNBERT = Names.of("modernbert", canonical=canonical, pack=pack, settings=settings, read=read)
