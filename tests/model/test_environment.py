"""What libraries find in the environment as they load, once `model` is imported."""

import os
from pathlib import Path

import pytest

from tests.support import forked

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


@pytest.mark.slow
def test_threads_spin_briefly() -> None:
    """GNU OpenMP says, as it is loaded, by what it goes."""
    done = forked.fresh("-c", "import model.training.trainer", check=True, env={"OMP_DISPLAY_ENV": "verbose"})
    assert "GOMP_SPINCOUNT = '1000'" in done.stderr


def faults(how: str) -> int:
    done = forked.fresh(
        "-c",
        FAULTS,
        how,
        check=True,
        env={key: value for key, value in os.environ.items() if key != "THP_MEM_ALLOC_ENABLE"},
    )
    return int(done.stdout)


@pytest.mark.slow
def test_a_large_tensor_needs_few_page_faults() -> None:
    if not HUGE.exists() or "[madvise]" not in HUGE.read_text():
        pytest.skip("this machine gives huge pages to nobody, or to everybody")
    pages = 4 * 80_000_000 // os.sysconf("SC_PAGE_SIZE")
    assert faults("plain") > pages / 2
    assert faults("ours") < pages / 20
