"""Description of each architecture in Hugging Face format: names, sizes, and constants."""

from dataclasses import dataclass
from typing import Self

import torch

from model.config import Json, ModelConfig, Weights
from pipeline.common.tables import read_table
from pipeline.tokenization.known_models import ROBERTA_PADDING, ROBERTAS

BUFFERS = ("position_ids", "token_type_ids")  # of old versions, not weights
PROJECTIONS = ("query", "key", "value")  # in the order of rows in the fused matrix
FUSED = ".attn.Wqkv.weight"
ROBERTA_TABLES = [f"roberta.embeddings.{name}_embeddings.weight" for name in ("position", "token_type")]
USUAL: Json = {"classifier_dropout": None, "use_cache": True}  # fields of BERT and RoBERTa
GLOBAL, LOCAL = "full_attention", "sliding_attention"
GLOBAL_BASE = 160_000.0  # of the rotary positions, if config.json has none
# Names in models without heads lack the prefix.
BARE = ("embeddings.", "layers.", "final_norm.")
CLASS, CHOICE, TAG, ANSWER = "class", "choice", "tag", "answer"  # types of fine-tuned heads


@dataclass(frozen=True, kw_only=True)
class Names:
    """Hugging Face's names for one architecture, and what its folders have besides; methods as BERT has it."""

    model_type: str
    pretrained: str  # class of a pre-trained model
    tuned: dict[str, str]  # class of a fine-tuned model by type of head
    last_layers: dict[str, str]  # their name of a head's last layer by type of head, where it is not `classifier`
    poolers: dict[str, str]  # the same for the layer before it, where pre-trained models have none
    # Prefixes of our names -> theirs; the first match applies.
    parts: dict[str, str]
    sizes: dict[str, str]  # our size -> theirs
    defaults: Json  # our sizes that their config may lack, where our defaults differ
    heads: list[str]  # prefixes of our names of optional weights, initialised if missing
    embedding_name: str  # their name of the word embeddings
    decoder: str  # their name of the decoder, which is tied to them
    tokenizer: Json  # fields of tokenizer_config.json
    exact_attention: str  # their attention that computes fully in double precision

    @classmethod
    def of(cls, kind: str) -> Self:
        """Return the names in the table of an architecture."""
        return cls(**read_table(__file__, "names.yaml")[kind])

    def their_name(self, name: str) -> str:
        """Return Hugging Face's name of one of our parameters."""
        words = name.split(".")
        layer = words[2] if name.startswith("encoder.layers.") else ""
        for part, theirs in self.parts.items():
            ours = part.format(layer)
            if name == ours or name.startswith(f"{ours}."):
                return theirs.format(layer) + name[len(ours) :]
        raise KeyError(name)

    def their_tensors(self, state: Weights, theirs: Json) -> Weights:
        """Return our parameters in Hugging Face's names and layout, for a config.json."""
        return {self.their_name(name): tensor for name, tensor in state.items()}

    def canonical(self, found: Weights, theirs: Json) -> Weights:
        """Return tensors as found in a file, with their config.json, by the names of `parts`.

        Adds the prefix of the encoder, renames gamma and beta, drops buffers, and gives the head its one bias.

        Raises:
            ValueError: Tables do not fit each other.
        """
        prefix, head = self.embedding_name.partition(".")[0], self.decoder.removesuffix(".decoder.weight")
        bare = not any(name.startswith(f"{prefix}.") for name in found)
        renamed = {}
        for name, tensor in found.items():
            if name.rpartition(".")[2] in BUFFERS:
                continue
            name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
            name = name.replace("LayerNorm.beta", "LayerNorm.bias")
            inside = name.startswith(("embeddings.", "encoder.", "pooler."))
            renamed[f"{prefix}.{name}" if bare and inside else name] = tensor
        bias = renamed.pop(f"{head}.decoder.bias", None)
        return renamed if bias is None else renamed | {f"{head}.bias": bias}  # of two, transformers reads the decoder's

    def settings(self, config: ModelConfig, entries: list[str]) -> Json:
        """Return fields of config.json other than `sizes` and those of `known_models`, for `entries` by id."""
        return {"pad_token_id": entries.index("[PAD]"), **USUAL}

    def read(self, theirs: Json) -> Json:
        """Return our settings in their config that are not in `sizes`.

        Raises:
            ValueError: One is not supported.
        """
        return {}


class RobertaNames(Names):
    """Names of RoBERTa's family: positions count from the padding's id, and there is one token type.

    Its row is in the positions, the only table that all readers know.
    """

    def canonical(self, found: Weights, theirs: Json) -> Weights:
        """Return the same, positions without the rows before the first, and with the one token type added.

        Rows of other types have a name of their own, under which `load` says that they are ignored.

        Raises:
            ValueError: The table of token types is not one of rows as wide as the positions.
        """
        renamed = super().canonical(found, theirs)
        places, table = ROBERTA_TABLES
        types = renamed.pop(table, None)
        if places in renamed:
            renamed[places] = renamed[places][first_row(theirs) :]
        if types is None or places not in renamed:
            return renamed
        if types.shape[1:] != renamed[places].shape[1:] or not types.numel():
            raise ValueError(f"{table} has shape {tuple(types.shape)}, must have a row as wide as {places}")
        renamed[places] = renamed[places].float() + types[0].float()
        if len(types) > 1:
            renamed[f"{table} (rows 1 to {len(types) - 1})"] = types[1:]
        return renamed

    def their_tensors(self, state: Weights, theirs: Json) -> Weights:
        """Add rows of zeros: before the positions, and that of the one token type."""
        tensors = super().their_tensors(state, theirs)
        places, table = ROBERTA_TABLES
        zeros = tensors[places].new_zeros(first_row(theirs), tensors[places].shape[1])
        return tensors | {places: torch.cat((zeros, tensors[places])), table: zeros[:1].clone()}

    def settings(self, config: ModelConfig, entries: list[str]) -> Json:
        """Return the fields of config.json for positions and special entries."""
        pad, cls, sep = map(entries.index, ("[PAD]", "[CLS]", "[SEP]"))
        return {
            "max_position_embeddings": config.positions + pad + 1,
            "pad_token_id": pad,
            "bos_token_id": cls,
            "eos_token_id": sep,
            "type_vocab_size": 1,
            **USUAL,
        }

    def read(self, theirs: Json) -> Json:
        """Return the number of positions, without the rows before the first."""
        return {"positions": theirs.get("max_position_embeddings", 512) - first_row(theirs)}


def first_row(theirs: Json) -> int:
    """Return the row of a sequence's first position, that after the padding's id."""
    return int(theirs.get("pad_token_id", ROBERTA_PADDING)) + 1


class ModernBertNames(Names):
    """Names of ModernBERT, whose files have one matrix for queries, keys and values.

    The decoder is the word embeddings and not stored; its bias is.
    """

    def canonical(self, found: Weights, theirs: Json) -> Weights:
        """Add the prefix `model.`, and split the projections."""
        bare = not any(name.startswith("model.") for name in found)
        renamed: Weights = {}
        for name, tensor in found.items():
            name = f"model.{name}" if bare and name.startswith(BARE) else name
            if name.endswith(FUSED) and not len(tensor) % 3:
                parts = zip(PROJECTIONS, tensor.chunk(3), strict=True)
                renamed |= {f"{name}.{part}": rows for part, rows in parts}
            else:
                renamed[name] = tensor
        return renamed

    def their_tensors(self, state: Weights, theirs: Json) -> Weights:
        """Fuse the projections of queries, keys and values into one matrix, as Hugging Face has them."""
        tensors = super().their_tensors(state, theirs)
        packed: Weights = {}
        for name, tensor in tensors.items():
            whole, _, part = name.rpartition(".")
            if not whole.endswith(FUSED):
                packed[name] = tensor
            elif part == PROJECTIONS[0]:
                packed[whole] = torch.cat([tensors[f"{whole}.{other}"] for other in PROJECTIONS])
        return packed

    def settings(self, config: ModelConfig, entries: list[str]) -> Json:
        """Return positions and layers in the format of transformers 5 and of earlier versions."""
        kinds = [LOCAL if n % config.global_every else GLOBAL for n in range(config.layers)]
        bases = {GLOBAL: config.rotary_global, LOCAL: config.rotary_local}
        return {
            "classifier_activation": config.activation,
            "layer_norm_eps": config.layer_norm_epsilon,  # the name that candle and vLLM read
            "initializer_cutoff_factor": 2.0,  # of transformers; text-embeddings-inference does not start without
            "layer_types": kinds,
            "global_attn_every_n_layers": config.global_every,
            "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
            "global_rope_theta": config.rotary_global,
            "local_rope_theta": config.rotary_local,
            "embedding_dropout": config.dropout,
            "classifier_dropout": config.dropout,
            "pad_token_id": entries.index("[PAD]"),
            **dict.fromkeys(("cls_token_id", "bos_token_id"), entries.index("[CLS]")),
            **dict.fromkeys(("sep_token_id", "eos_token_id"), entries.index("[SEP]")),
        }

    def read(self, theirs: Json) -> Json:
        """Read the global layers and the rotary bases, in either format.

        Raises:
            ValueError: The layer order or the type of positions is not supported.
        """
        inner, last = (theirs.get(f"{part}_activation", "gelu") for part in ("hidden", "classifier"))
        if inner != last:
            raise ValueError(f"classifier_activation is {last}, must be hidden_activation, {inner}")
        kinds, every = theirs.get("layer_types"), theirs.get("global_attn_every_n_layers", 3)
        if kinds is not None:
            if len(kinds) != theirs.get("num_hidden_layers"):
                raise ValueError(f"layer_types has {len(kinds)} entries, must have one for each layer")
            indices = [index for index, kind in enumerate(kinds) if kind == GLOBAL]
            every = indices[1] if len(indices) > 1 else max(len(kinds), 1)
            if kinds != [LOCAL if index % every else GLOBAL for index in range(len(kinds))]:
                rule = f"must repeat one {GLOBAL} followed by a fixed number of {LOCAL}"
                raise ValueError(f"layer_types is {kinds}, {rule}")
        sizes: Json = {"global_every": every}
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
                base = sizes.get("rotary_global", GLOBAL_BASE)  # as null meant before transformers 5
            if base is not None:
                sizes[ours] = float(base)
        return sizes


NAMES = {"bert": Names.of("bert"), "modernbert": ModernBertNames.of("modernbert")}  # by our architecture
NAMES |= {kind: RobertaNames.of(kind) for kind in ROBERTAS}
