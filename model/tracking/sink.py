"""What every tracker is, and their tables."""

from dataclasses import dataclass

from model.config import Metrics
from pipeline.common.tables import read_table


def tables() -> dict[str, dict[str, str]]:
    """Return how figures are shown, and the values of WANDB_MODE."""
    return dict(read_table(__file__, "tracker.yaml"))


@dataclass(frozen=True)
class Row:
    """What a training shows after `step` updates."""

    kind: str  # train or validation
    step: int
    figures: Metrics
    left: float  # seconds until the last step, about


class Sink:
    """A place where a training shows how it goes; each takes what it can show."""

    def log_metrics(self, row: Row) -> None:
        """Show metrics."""

    def step_done(self, step: int) -> None:
        """Show that an update is done; they count from 1."""

    def before_save(self) -> None:
        """Have on the disk what belongs to a checkpoint that is about to be written."""

    def checkpoint_saved(self) -> None:
        """Show that a checkpoint was written."""

    def alert(self, title: str, text: str) -> None:
        """Tell a person at once."""

    def close(self) -> None:
        """Show what waits, and end."""
