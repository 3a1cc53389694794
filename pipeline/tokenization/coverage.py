"""Share of the characters that a vocabulary knows, of texts that were tokenized with it.

A share of tokens would say little: a sentence of Thai is one unknown token.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.common.formatting import WARNING

MOST = 0.01  # share of unknown characters without a warning


@dataclass
class Coverage:
    """Counts of characters."""

    characters: int = 0
    unknown: int = 0  # in unknown tokens
    line_ends: int = 0  # in tokens of their own

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
        return f"{self}{WARNING}{self.warning}" if self.warning else str(self)
