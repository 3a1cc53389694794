"""The text that a vocabulary is learnt from is on disk, however large."""

import tracemalloc
from pathlib import Path

from pipeline.vocab import TextSample


def test_a_sample_is_not_held_in_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        sample = TextSample(tmp_path)
        sample.add_beginning((f"word{number} " * 300 for number in range(10_000)), 20_000_000)
        size = sum(map(len, sample))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 19_000_000
    assert peak < size / 4
