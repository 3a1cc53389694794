"""The model card says what the manifests of the stages say."""

from dataclasses import replace

from tiny_bert import CONFIG, make_vocabulary, our_state

from model.huggingface import bert_format, model_card
from pipeline.common.manifest import Manifest


def test_the_card_says_what_the_run_was(tmp_path):
    state, vocab_folder = our_state(), make_vocabulary(tmp_path / "vocab")
    common = {"version": 1, "inputs": {}, "files": {}, "summary": "", "finished": "now"}
    prepare = Manifest(
        stage="prepare", fingerprint="p" * 64, seconds=1.0,
        config={"corpus": {"name": "books", "language": "en", "files": []}},
        figures={"documents": {"written": 1234}, "totals": {"tokens": 99000}}, **common,
    )  # fmt: skip
    train = Manifest(
        stage="train", fingerprint="t" * 64, seconds=7200.0,
        config={"optimizer": {"name": "adamw", "learning_rate": 1e-4}, "batch_size": 256},
        figures={"steps": 5000, "validation": {"masked_lm_accuracy": 0.4321}}, **common,
    )  # fmt: skip
    bert_format.save(tmp_path / "out", CONFIG, state, vocab_folder, [train, prepare])
    text = (tmp_path / "out" / "README.md").read_text()
    for words in ("license: ", "fill in", "language: en", "| documents | 1,234 |",
                  "| learning rate | 0.0001 |", "| steps | 5,000 |", "| hours | 2.00 |",
                  "| masked lm accuracy | 0.4321 |"):  # fmt: skip
        assert words in text
    assert "The capital of France" in text
    more = replace(prepare, config={"corpus": {"name": "wiki"}})
    bert_format.save(tmp_path / "both", CONFIG, state, vocab_folder, [train, prepare, more])
    text = (tmp_path / "both" / "README.md").read_text()
    for words in ("## Data, 1 of 2", "| corpus | books |", "## Data, 2 of 2", "| corpus | wiki |"):
        assert words in text


def test_the_card_names_the_file_that_was_read_and_no_address_that_was_not() -> None:
    address = [{"url": "https://example.org/dump.xml.bz2"}]
    corpus = {"name": "wiki", "language": "vi", "path": "/home/me/vi.xml.bz2", "files": address}
    prepare = Manifest(
        stage="prepare", fingerprint="p" * 64, seconds=1.0, config={"corpus": corpus}, figures={},
        version=1, inputs={}, files={}, summary="", finished="now",
    )  # fmt: skip
    text = model_card.write(CONFIG, 1, [prepare], {})
    assert "| from | vi.xml.bz2 |" in text
    assert "example.org" not in text
    assert "France" not in text, "an English sentence says nothing of a Vietnamese model"
    mix = {"name": "mix", "parts": {"a": corpus | {"path": None}, "b": {"path": "s3://x/books/"}}}
    assert model_card.sources(mix) == ["https://example.org/dump.xml.bz2", "books"]
