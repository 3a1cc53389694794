"""What `keep` and `submit` cannot do is refused before any training."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.evaluation import examples


def configured(folder: Path, task: TaskConfig, **settings: Any) -> EvaluateConfig:
    """Return a configuration of `task`, whose files and model are below `folder`."""
    return EvaluateConfig(
        workdir=str(folder), out=str(folder / "out"), task=task, data=str(folder / "data"),
        pretrained=str(folder / "model"), sequence_length=16, **settings,
    )  # fmt: skip


@pytest.mark.parametrize("key", ["keep", "submit"])
@pytest.mark.parametrize("pooling", ["mean", "max", "attention"])
def test_a_model_of_chunks_is_neither_kept_nor_submitted(
    tmp_path: Path, key: str, pooling: str
) -> None:
    chunks = {"truncation": "chunks", "chunk_pooling": pooling}
    configured(tmp_path, examples.task_of("rte"), **chunks)
    with pytest.raises(ConfigError, match=f"{key}=true: .*chunks") as raised:
        configured(tmp_path, examples.task_of("rte"), **chunks, **{key: True})
    assert raised.value.key == "truncation"
