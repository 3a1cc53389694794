"""What libraries find in the environment as they load, once `model` is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
FAULTS = """
import resource, sys
if sys.argv[1] == "ours":
    import model
import torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    torch.ones(20_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_threads_spin_briefly(root: Path) -> None:
    """GNU OpenMP says, as it is loaded, by what it goes."""
    done = subprocess.run(
        [sys.executable, "-c", "import model.training.trainer"],
        cwd=root,
        check=True,
        env={"OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
    )
    assert "GOMP_SPINCOUNT = '1000'" in done.stderr


def faults(root: Path, how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        env={key: value for key, value in os.environ.items() if key != "THP_MEM_ALLOC_ENABLE"},
    )
    return int(done.stdout)


def test_a_large_tensor_needs_few_page_faults(root: Path) -> None:
    if not HUGE.exists() or "[madvise]" not in HUGE.read_text():
        pytest.skip("this machine gives huge pages to nobody, or to everybody")
    pages = 4 * 80_000_000 // os.sysconf("SC_PAGE_SIZE")
    assert faults(root, "plain") > pages / 2
    assert faults(root, "ours") < pages / 20
