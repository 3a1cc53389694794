"""Whether a score differs from guessing, given how many examples it was measured on."""

import math

from pipeline.console.formatting import pluralize
from pipeline.records.metrics import Score, SystemScore

ERRORS = 2.0  # standard errors above a guess from which a score is not chance: about 95 %
CORRELATIONS = ("matthews", "pearson", "spearman")


def spread(metric: str, guess: float, rows: int) -> float | None:
    """Return how far from `guess` pure guessing scores on `rows` examples; None if not known."""
    if rows < 2:
        return None
    if metric == "accuracy":
        return ERRORS * math.sqrt(guess * (1 - guess) / rows)
    return ERRORS / math.sqrt(rows - 1) if metric in CORRELATIONS else None


def verdict(found: Score) -> str | None:
    """Return a remark where guessing reaches the score of an evaluation too, else None.

    The guess is the most frequent class on the same dev set. F1 has no simple spread: its accuracy
    is compared where the task has one. Not that of tagging, most of whose tokens are in no entity:
    its F1 is of whole entities, and who guesses finds none.
    """
    if isinstance(found, SystemScore):
        above = [name for name, one in [*found.systems.items()][1:] if one["scores"][found.metric] >= found.score]
        return f"not above {', '.join(above)}" if above else None
    metric, score, guess = found.metric, found.score, found.majority
    rows, constant, scores = found.rows.get("dev", 0), found.majority_scores, found.scores
    tagging = "precision" in scores
    if metric == "f1" and not tagging and "accuracy" in constant and "accuracy" in scores:
        metric, score, guess = "accuracy", scores["accuracy"], constant["accuracy"]
    if guess is None:
        return None
    width = spread(metric, guess, rows)
    where = f" on {pluralize(rows, 'dev example')}" if rows else ""
    if score <= guess + (width or 0.0):
        near = f", within ± {width:.3f} of guessing" if width and guess - score <= width else ""
        return f"at chance{near}{where}"
    if found.baseline is not None and found.score <= found.baseline:
        return f"not above random initialisation{where}"
    return None
