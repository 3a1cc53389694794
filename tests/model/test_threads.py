"""Waiting threads leave the cores to others."""

import subprocess
import sys
from pathlib import Path


def test_threads_spin_briefly_from_the_moment_pytorch_loads(root: Path) -> None:
    """GNU OpenMP says, as it is loaded, by what it goes."""
    done = subprocess.run(
        [sys.executable, "-c", "import model.trainer"], cwd=root, check=True,
        env={"OMP_DISPLAY_ENV": "verbose"}, capture_output=True, text=True,
    )  # fmt: skip
    assert "GOMP_SPINCOUNT = '1000'" in done.stderr
