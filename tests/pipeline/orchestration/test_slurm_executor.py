"""What the executor asks of sbatch."""

import pytest

from pipeline.orchestration.slurm import MARGIN, margin


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("2", 30), ("1:30", 22), ("0:10:00", 150), ("24:00:00", MARGIN), ("1-0", MARGIN),
     ("0-00:04", 60), ("UNLIMITED", MARGIN), ("0", MARGIN)],
)  # fmt: skip
def test_a_signal_before_the_limit_leaves_most_of_the_time(limit: str, seconds: int) -> None:
    assert margin(limit) == seconds
