"""The text that a vocabulary is learnt from is on disk, however large."""

import tracemalloc
from types import SimpleNamespace

from pipeline import run
from pipeline.vocab import TextSample
from tests.support import finished


def test_a_sample_is_not_held_in_memory(tmp_path):
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


# What a run shows at its end: masked sentences that its model filled in.


SAMPLES = [{"text": "the [MASK] .", "masks": [[{"word": "mill", "probability": 0.5}]]}]


def converted(out, figures):
    """A stage `convert` that is done."""
    out.mkdir()
    finished.manifest("convert", figures=figures).write(out)
    return SimpleNamespace(kind="convert", out=out)


def test_checkpoints_that_are_converted_too_do_not_hide_the_models_samples(tmp_path, capsys):
    model = converted(tmp_path / "convert", {"samples": SAMPLES})
    marked = converted(tmp_path / "marked", {"checkpoints": {"chck_1M": {"samples": SAMPLES}}})
    run.show_samples([marked])
    assert capsys.readouterr().out == ""
    run.show_samples([model, marked])
    assert "-> 'mill' 0.50" in capsys.readouterr().out
