"""How tasks of each type are scored."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import MINIMAL_PAIRS, RETRIEVAL, SIMILARITY, EvaluateConfig, TaskConfig
from pipeline.evaluation import beir, examples, grid_search, text_similarity, zero_shot


@dataclass(frozen=True)
class Evaluator:
    """What scores the tasks of a type: raises UserError for files, counts and does runs, evaluates."""

    check_files: Callable[[str, TaskConfig], object]
    evaluate: Callable[[EvaluateConfig, Path], grid_search.Evaluation]
    run_count: Callable[[EvaluateConfig], int] = lambda config: 1
    run_part: Callable[[EvaluateConfig, int, int], bool] = lambda config, index, parts: index == 0


FINE_TUNING = Evaluator(examples.check_files, grid_search.evaluate, grid_search.run_count, grid_search.run_part)
EVALUATORS = {
    MINIMAL_PAIRS: Evaluator(examples.pair_files, zero_shot.evaluate),
    RETRIEVAL: Evaluator(beir.files_of, text_similarity.evaluate),
    SIMILARITY: Evaluator(examples.check_files, text_similarity.evaluate),
}


def evaluator_of(task: TaskConfig) -> Evaluator:
    """Return what scores a task."""
    return EVALUATORS.get(task.kind, FINE_TUNING)
