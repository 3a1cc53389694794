"""Folders of a tiny BERT, as we and as transformers write them."""

from pathlib import Path

import pytest
from transformers import BertForPreTraining

from tests.model.tiny_bert import make_vocabulary, write_theirs


@pytest.fixture
def vocab_folder(tmp_path: Path) -> Path:
    return make_vocabulary(tmp_path / "vocab")


@pytest.fixture
def theirs(tmp_path: Path) -> tuple[Path, BertForPreTraining]:
    """A folder as transformers itself writes it, and its model."""
    return tmp_path / "theirs", write_theirs(tmp_path / "theirs")
