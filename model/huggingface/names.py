"""Description of an architecture in Hugging Face format: names, sizes, and constants."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from model.config import ModelConfig

SIZES = {  # our size -> the name that it has in every architecture
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "positions": "max_position_embeddings",
    "vocab_size": "vocab_size",
}
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
