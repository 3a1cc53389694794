"""A run ends as the stage did that ended it: with its words, and with its exit code."""

import dataclasses
import sys
from pathlib import Path

import pytest

from pipeline.config import ReportConfig
from pipeline.dag import Node
from pipeline.errors import Diverged, Exit, Restart, UserError
from pipeline.executor import LocalExecutor, StageFailed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script(Node):
    """A stage that is a line of Python."""

    line: str

    def command(self, processes: int | None) -> list[str]:
        return [sys.executable, "-c", self.line]


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        (Exit.USER, UserError, r"stage train: a bad value \(log: .*train\.log\)"),
        (Exit.DIVERGED, Diverged, r"stage train: a bad value \(log: "),
        (Exit.RESTART, Restart, "stage train was cut short .* the same command goes on"),
        (Exit.BUG, StageFailed, "exit code 1; its log (?s:.*)a bad value"),
        (Exit.DONE, StageFailed, "exit code 0; its log"),  # and left nothing
    ],
)
def test_the_end_of_a_stage_is_that_of_the_run(
    tmp_path: Path, code: Exit, kind: type[Exception], told: str
) -> None:
    stage = Script(
        name="train", kind="train", overrides=[], needs=(), fingerprint="f", reason="not made yet",
        config=ReportConfig(workdir=str(tmp_path), out=str(tmp_path / "train")),
        line=f"print('error: a bad value'); raise SystemExit({int(code)})",
    )  # fmt: skip
    with pytest.raises(kind, match=told) as raised:
        LocalExecutor(tmp_path, 1, None).run([stage])
    assert type(raised.value) is kind
