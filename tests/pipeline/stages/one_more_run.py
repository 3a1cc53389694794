"""What a stage does that resumes: it starts over if it is forced, and adds to what is there."""

from pathlib import Path

from pipeline.common import forced
from pipeline.config import StageConfig


def one_more_run(config: StageConfig, out: Path) -> int:
    """Do a run more than there are, and return how many there were."""
    runs = out / "runs"
    if config.force:
        forced.start_over(runs)
    runs.mkdir(exist_ok=True)
    done = len(list(runs.glob("*.txt")))
    (runs / f"{done}.txt").write_text("done")
    return done
