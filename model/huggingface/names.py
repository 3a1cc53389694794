"""Description of an architecture in Hugging Face format: names, sizes, and constants; that of BERT."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from model.config import ModelConfig
from pipeline.common.tables import read_table

BUFFERS = ("position_ids", "token_type_ids")  # of old versions, not weights
CLASS, CHOICE, TAG, ANSWER = "class", "choice", "tag", "answer"  # types of fine-tuned heads


@dataclass(frozen=True, kw_only=True)
class Names:
    """Hugging Face's names for one architecture."""

    model_type: str
    title: str  # common name
    pretrained: str  # class of a pre-trained model
    tuned: dict[str, str]  # class of a fine-tuned model by type of head
    answer_head: str  # their name of the question-answering head; other heads are `classifier`
    # Prefixes of our names -> theirs; the first match applies.
    parts: dict[str, str]
    sizes: dict[str, str]  # our size -> theirs
    defaults: dict[str, Any]  # our sizes that their config may lack, where our defaults differ
    fixed: dict[str, Any]  # config fields of which we support one value
    heads: tuple[str, ...]  # prefixes of our names of optional weights, initialised if missing
    words: str  # their name of the word embeddings
    decoder: str  # their name of the decoder, which is tied to them
    # Tensors as found in a file -> tensors with the names of `parts`.
    canonical: Callable[[dict[str, Tensor]], dict[str, Tensor]]
    pack: Callable[[dict[str, Tensor]], dict[str, Tensor]]  # tensors by `parts` -> their format
    # Fields of config.json other than `sizes` and `fixed`, from our sizes and the entries by id.
    settings: Callable[[ModelConfig, list[str]], dict[str, Any]]
    read: Callable[[dict[str, Any]], dict[str, Any]]  # their config -> our settings not in `sizes`
    tokenizer: dict[str, Any]  # fields of tokenizer_config.json
    exact_attention: str  # their attention that computes fully in double precision

    @classmethod
    def of(cls, kind: str, **computed: Any) -> Self:
        """Return the names in the table of an architecture, with what is computed for it."""
        table = read_table(__file__, "names.yaml")[kind]
        return cls(**table | {"heads": tuple(table["heads"])} | computed)

    def their_name(self, name: str) -> str:
        """Return Hugging Face's name of one of our parameters."""
        words = name.split(".")
        layer = words[2] if name.startswith("encoder.layers.") else ""
        for part, theirs in self.parts.items():
            ours = part.format(layer)
            if name == ours or name.startswith(f"{ours}."):
                return theirs.format(layer) + name[len(ours) :]
        raise KeyError(name)

    def their_tensors(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return our parameters in Hugging Face's names and layout."""
        return self.pack({self.their_name(name): tensor for name, tensor in state.items()})


def canonical(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add the prefix `bert.`, rename gamma and beta, and drop buffers."""
    bare = not any(name.startswith("bert.") for name in found)
    renamed = {}
    for name, tensor in found.items():
        if name.rpartition(".")[2] in BUFFERS:
            continue
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        inside = name.startswith(("embeddings.", "encoder.", "pooler."))
        renamed[f"bert.{name}" if bare and inside else name] = tensor
    bias = renamed.pop("cls.predictions.decoder.bias", None)
    if bias is not None:
        renamed.setdefault("cls.predictions.bias", bias)
    return renamed


def settings(config: ModelConfig, entries: list[str]) -> dict[str, Any]:
    """Return the fields of config.json for special entries and constants."""
    return {"pad_token_id": entries.index("[PAD]"), "classifier_dropout": None, "use_cache": True}


BERT = Names.of("bert", canonical=canonical, pack=dict, settings=settings, read=lambda theirs: {})
