"""Share of the characters that a vocabulary knows, of texts that were tokenized with it.

A share of tokens would say little: a sentence of Thai is one unknown token.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from tokenizers import Tokenizer, pre_tokenizers

from pipeline.console.formatting import WARNING, pluralize
from pipeline.storage.strict_json import Json

MOST = 0.01  # share of unknown characters without a warning


@dataclass
class Coverage:
    """Counts of characters."""

    characters: int = 0
    unknown: int = 0  # in unknown tokens
    line_ends: int = 0  # in tokens of their own
    shortened: int = 0  # texts, or pairs, of which a part was not read

    def counts(self) -> dict[str, int]:
        """Return the counts by the names that they have in the totals of `prepare`."""
        names = "tokenized_characters", "unknown_characters", "line_ends"
        return dict(zip(names, (self.characters, self.unknown, self.line_ends), strict=True))

    @classmethod
    def of(cls, totals: Mapping[str, int]) -> "Coverage":
        """Return what `counts` gave, added up."""
        return cls(*(totals.get(name, 0) for name in cls().counts()))

    @property
    def share(self) -> float:
        """Return the share of unknown characters."""
        return self.unknown / max(self.characters, 1)

    def __str__(self) -> str:
        return f"{self.share:.3%} of the characters unknown"

    @property
    def warning(self) -> str | None:
        """Return a warning if the vocabulary does not fit the texts."""
        if self.share > MOST:
            return (
                f"the vocabulary does not know {self.share:.1%} of the characters; make one from such "
                "texts (python -m pipeline.vocab)"
            )
        if self.line_ends:
            return f"{self.line_ends:,} line ends became tokens, but prepare reads them as spaces; replace them"
        return None

    @property
    def line(self) -> str:
        """Return what a command says of its texts."""
        shortened = f", {pluralize(self.shortened, 'text')} read in part, being too long" if self.shortened else ""
        return f"{self}{shortened}{WARNING}{self.warning}" if self.warning else f"{self}{shortened}"


class Dropped:
    """Counter of characters that BPE without an unknown token leaves out, as if they were not there."""

    def __init__(self, library: Tokenizer):
        self._library = library
        self._lost: dict[str, bool] = {}

    @classmethod
    def of(cls, library: Tokenizer, spec: Json) -> "Dropped | None":
        """Return one for a tokenizer that may leave any out; `spec` is its tokenizer.json."""
        model, cut = spec["model"], f"{spec['normalizer']} {spec['pre_tokenizer']}"
        whole = model["type"] != "BPE" or model["unk_token"] is not None or model["byte_fallback"]
        if whole or ("ByteLevel" in cut and model["vocab"].keys() >= {*pre_tokenizers.ByteLevel.alphabet()}):
            return None
        return cls(library)

    def count(self, texts: Iterable[str]) -> int:
        """Return how many characters of texts are left out."""
        counts = Counter(chain.from_iterable(texts))
        self._lost |= {one: self._is_lost(one) for one in counts.keys() - self._lost.keys()}
        return sum(count for one, count in counts.items() if self._lost[one])

    def _is_lost(self, text: str) -> bool:
        """Return whether tokens have fewer symbols than what they were made of."""
        tokens = self._library.encode(text, add_special_tokens=False).tokens
        return sum(map(len, tokens)) < len(as_entries(self._library, text))


def as_entries(library: Tokenizer, text: str) -> str:
    """Return a text with the letters that entries have."""
    normal = library.normalizer.normalize_str(text) if library.normalizer else text
    parts = library.pre_tokenizer.pre_tokenize_str(normal) if library.pre_tokenizer else [(normal, ())]
    return "".join(part for part, _ in parts)
