"""How Hugging Face's format says what an architecture is: names, sizes, and what is fixed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from model.config import ModelConfig

CLASS, CHOICE, TAG, ANSWER = "class", "choice", "tag", "answer"  # kinds of fine-tuned heads


@dataclass(frozen=True, kw_only=True)
class Names:
    """Hugging Face's words for one architecture."""

    model_type: str
    title: str  # as people call it
    pretrained: str  # the class of a pre-trained model
    tuned: dict[str, str]  # the class of a fine-tuned one, by the kind of its head
    answer_head: str  # their name of the head that finds answers; other heads are `classifier`
    # Parts of our names -> theirs; the first that fits the beginning of what is left is taken.
    parts: dict[str, str]
    sizes: dict[str, str]  # our size -> theirs
    fixed: dict[str, Any]  # what a folder may say otherwise and we compute one way only
    heads: tuple[str, ...]  # our names begin so of what a folder may lack: it is then drawn
    words: str  # their name of the word embeddings
    decoder: str  # and of the decoder, which is tied to them
    decoder_bias: str  # under which name its bias is kept
    # Any tensors that are found -> those named as `parts` has them.
    canonical: Callable[[dict[str, Tensor]], dict[str, Tensor]]
    pack: Callable[[dict[str, Tensor]], dict[str, Tensor]]  # tensors by `parts` -> as they write
    # What config.json says beyond `sizes` and `fixed`, from our sizes and the entries by id.
    settings: Callable[[ModelConfig, list[str]], dict[str, Any]]
    read: Callable[[dict[str, Any]], dict[str, Any]]  # our settings that only they say so
    tokenizer: dict[str, Any]  # of tokenizer_config.json
    exact_attention: str  # which of their attentions computes in double precision all through

    def their_name(self, name: str) -> str:
        """Hugging Face's name of one of our parameters."""
        words = name.split(".")
        layer = words[2] if name.startswith("encoder.layers.") else ""
        for part, theirs in self.parts.items():
            ours = part.format(layer)
            if name == ours or name.startswith(f"{ours}."):
                return theirs.format(layer) + name[len(ours) :]
        raise KeyError(name)

    def their_tensors(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Our parameters as they write them."""
        return self.pack({self.their_name(name): tensor for name, tensor in state.items()})
