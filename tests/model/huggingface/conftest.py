"""Folders of a tiny BERT, as we and as transformers write them."""

import pytest

from tests.model.tiny_bert import make_vocabulary, write_theirs


@pytest.fixture
def vocab_folder(tmp_path):
    return make_vocabulary(tmp_path / "vocab")


@pytest.fixture
def theirs(tmp_path):
    """A folder as transformers itself writes it, and its model."""
    return tmp_path / "theirs", write_theirs(tmp_path / "theirs")
