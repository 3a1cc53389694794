"""What a run shows at its end: masked sentences that its model filled in."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipeline import run
from pipeline.orchestration.run_document import StageRecord
from tests.support import finished

SAMPLES = [{"text": "the [MASK] .", "masks": [[{"word": "mill", "probability": 0.5}]]}]


def converted(out: Path, figures: dict[str, Any]) -> StageRecord:
    """A stage `convert` that is done."""
    out.mkdir()
    finished.manifest("convert", figures=figures).write(out)
    return cast(StageRecord, SimpleNamespace(kind="convert", out=out))


def test_checkpoints_that_are_converted_too_do_not_hide_the_models_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = converted(tmp_path / "convert", {"samples": SAMPLES})
    marked = converted(tmp_path / "marked", {"checkpoints": {"chck_1M": {"samples": SAMPLES}}})
    run.show_samples([marked])
    assert capsys.readouterr().out == ""
    run.show_samples([model, marked])
    assert "-> 'mill' 0.50" in capsys.readouterr().out
