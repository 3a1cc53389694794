"""What a training will reach, and with which settings: a law of the records.

Its coefficients are in `law.yaml`, which `python -m benchmarks.records.law` writes; PyTorch is not imported.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from model.training.density import ENTRIES, Density
from pipeline.common.tables import read_table

MILLION = 1e6
REPEATED = 0.3  # least bits of a token, next to the usual text's, as of text that repeats itself
FEWER = 0.25  # power of the entries by which tokens of smaller vocabularies are shorter, as of 800 of English


@dataclass(frozen=True)
class Expected:
    """Held-out bits per byte, and the interval of two standard deviations of what the law left of its records."""

    bits: float
    low: float
    high: float
    beyond: float  # how many times more, or less, tokens are seen than in any record; 1: within
    unbound: float  # the bits of the law, also above those of a guess: which is better

    def __str__(self) -> str:
        """Say it with its interval."""
        return f"{self.bits:.2f} ({self.low:.2f} to {self.high:.2f})"


def table() -> dict[str, Any]:
    """Return the coefficients with their provenance."""
    coefficients: dict[str, Any] = read_table(__file__, "law.yaml")
    return coefficients


def worth(once: float, readings: float, half: float) -> float:
    """Return the tokens of new text that reading `once` so often is worth: at most 1 + `half` times as many."""
    return once * (readings if readings <= 1 else 1 + half * -math.expm1(-(readings - 1) / half))


def bits_per_byte(
    law: dict[str, float], parameters: float, once: float, readings: float, entries: float, dense: float
) -> float:
    """Return the expected bits per byte of a model trained on `once` tokens of a vocabulary of `ENTRIES` entries.

    Its `parameters` are those outside the embeddings: a row of a vocabulary reads no context. `dense` is the text's
    density next to that of the usual one.
    """
    of_size = law["size"] * (parameters / MILLION) ** -law["size_power"]
    of_text = law["text"] * (worth(once, readings, law["readings"]) / MILLION) ** -law["text_power"]
    return float(dense * (law["least"] + of_size + of_text) * (entries / ENTRIES) ** law["entries_power"])


def outside_embeddings(parameters: float, entries: int, hidden: int) -> float:
    """Return the parameters of a model without its word embeddings and the decoder's bias."""
    return parameters - entries * (hidden + 1)


def expect(parameters: float, once: float, readings: float, entries: int, text: Density | None = None) -> Expected:
    """Return what the law expects of `once` bytes of a text; its interval is wider the further it is from the records.

    A text of unknown density is taken as the usual one.
    """
    coefficients = table()
    usual = Density(coefficients["density"], bytes_a_token(ENTRIES))
    text = text or usual
    once = once / text.token
    dense = max(text.bits / usual.bits, REPEATED * usual.token / text.token)
    unbound = coefficients["level"] * bits_per_byte(coefficients["law"], parameters, once, readings, entries, dense)
    guess = math.log2(entries) / bytes_a_token(entries, text)  # of who knows nothing
    bits = min(unbound, guess)
    low, high = coefficients["range"]["tokens_read"]
    beyond = max(1.0, once * readings / high, low / max(once * readings, 1.0))
    spread = math.exp(2 * math.hypot(coefficients["residual"] * (1 + math.log(beyond)), coefficients["levels"]))
    return Expected(bits, bits / spread, min(bits * spread, guess), beyond, unbound)


def bytes_a_token(entries: int, text: Density | None = None) -> float:
    """Return the bytes of a token, without white space, of the usual text or another."""
    shorter: float = min(1.0, entries / ENTRIES) ** FEWER
    usual = near("bytes_a_token", ENTRIES)
    return near("bytes_a_token", entries) * shorter * (text.token / usual if text else 1.0)


def near(name: str, value: float) -> float:
    """Return a setting of the table by a size: between the measured ones, in logarithms."""
    points = sorted(table()[name].items())
    x, y = (np.log([float(each) for each in axis]) for axis in zip(*points, strict=True))
    return float(np.exp(np.interp(math.log(value), x, y)))
