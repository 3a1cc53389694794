"""What the architectures can do and what they cost, by name; without PyTorch."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Traits:
    """In what an architecture differs, where sizes, checks and costs ask for it."""

    sentence_pairs: bool = False  # it has segments, and a pooler with a next-sentence head
    learned_positions: bool = False  # a vector each; else rotary
    first_position: int = 0  # rows of their table before that of a sequence's first token
    separators: int = 1  # between the texts of a pair
    gated: bool = False  # the feed-forward part has three matrices, and norms come before each part
    local_layers: bool = False  # only each `global_every`-th layer attends to whole sequences


ARCHITECTURES = {
    "bert": Traits(sentence_pairs=True, learned_positions=True),
    "modernbert": Traits(gated=True, local_layers=True),
}
ROBERTAS = ("roberta", "xlm-roberta", "camembert")  # one network, of which transformers has a class each
ARCHITECTURES |= dict.fromkeys(ROBERTAS, Traits(learned_positions=True, first_position=2, separators=2))
