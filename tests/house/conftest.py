"""The situation of typical mistakes."""

import json

import pytest


@pytest.fixture
def files(tmp_path):
    """Small inputs for the mistakes."""
    for name in ("books", "my books"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("Words. More words.\n")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nwords\nmore\n.\n")
    (tmp_path / "more.txt").write_text("Running\n")
    (tmp_path / "tone.tsv").write_text(f"text\tlabel\n{'words ' * 13}\t0\n")
    (tmp_path / "array.jsonl").write_text('[{"text": "words"}]\n')
    (tmp_path / "int.jsonl").write_text('{"text": 5}\n')
    (tmp_path / "content.jsonl").write_text('{"content": "words"}\n')
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return tmp_path
