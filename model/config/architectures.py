"""What the architectures can do and what they cost, by name; without PyTorch."""

from dataclasses import dataclass

from pipeline.tokenization.known_models import ROBERTAS


@dataclass(frozen=True, kw_only=True)
class Traits:
    """In what an architecture differs, where sizes, checks and costs ask for it."""

    sentence_pairs: bool = False  # it has segments, and a pooler with a next-sentence head
    learned_positions: bool = False  # a vector each; else rotary
    after_padding: bool = False  # in files, positions count from the padding's id + 1
    separators: int = 1  # between the texts of a pair
    gated: bool = False  # the feed-forward part has three matrices, and norms come before each part
    local_layers: bool = False  # only each `global_every`-th layer attends to whole sequences


ARCHITECTURES = {
    "bert": Traits(sentence_pairs=True, learned_positions=True),
    "modernbert": Traits(gated=True, local_layers=True),
}
ARCHITECTURES |= dict.fromkeys(ROBERTAS, Traits(learned_positions=True, after_padding=True, separators=2))
