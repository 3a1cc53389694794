"""Scores of models on tasks: of models that are fine-tuned for a task, and of models as they are."""

from pathlib import Path
from typing import Protocol

from pipeline.common.figures import Score
from pipeline.config import EvaluateConfig, TaskConfig


class Evaluation(Protocol):
    """Interface of what evaluates models on a task."""

    def run_count(self, config: EvaluateConfig) -> int:
        """Return how many runs there are to share out."""

    def run_part(self, config: EvaluateConfig, index: int, parts: int) -> bool:
        """Do every `parts`-th run from `index` on; return whether to write the results now."""

    def evaluate(self, config: EvaluateConfig, out: Path) -> tuple[Score, str, dict[str, str]]:
        """Do the missing runs; return the score, the summary line, and other files by name."""


def evaluation_of(task: TaskConfig) -> Evaluation:
    """Return how models are evaluated on a task."""
    from pipeline.evaluation import grid_search, zero_shot

    return grid_search if task.trains else zero_shot
