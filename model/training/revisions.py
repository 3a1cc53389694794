"""Names of a run's checkpoints as revisions of a repository, and the choice of them."""

from pathlib import Path

from pipeline.common import checkpoints
from pipeline.common.errors import ConfigError


def of_mark(mark: float) -> str:
    """Return the name of a checkpoint that was kept for its words, in millions of them."""
    return f"chck_{mark / 1e6:.12g}M"


def chosen(train: Path, wishes: list[str]) -> dict[str, Path]:
    """Return the checkpoints of a training that are wished for, by the names of their revisions.

    A wish is a name, step-1000 or chck_1M; or `marked`, those of save_at_words; or `all`.

    Raises:
        ConfigError: a checkpoint is missing.
        InputError: the training has no checkpoint.
    """
    last, _ = checkpoints.locate(train)
    by_step, marked = dict[str, Path](), dict[str, Path]()
    for step, path in checkpoints.steps(last.parent).items():
        by_step[f"step-{step}"] = path
        if (mark := checkpoints.mark_of(path)) is not None:
            marked[of_mark(mark)] = path
    rest = {name: path for name, path in by_step.items() if path not in marked.values()}
    known, found = by_step | marked, dict[str, Path]()
    for wish in wishes:
        if wish == "all":
            found |= marked | rest
        elif wish == "marked" and marked:
            found |= marked
        elif wish in known:
            found[wish] = known[wish]
        else:
            raise ConfigError(f"{train} has no such checkpoint, only {', '.join(known)}", "push_revisions", wish)
    return found
