"""The model card says what the manifests of the stages say."""

from dataclasses import replace

from tiny_bert import CONFIG, make_vocabulary, our_state

from model import huggingface
from pipeline.stage import Manifest


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
    huggingface.save(tmp_path / "out", CONFIG, state, vocab_folder, [train, prepare])
    card = (tmp_path / "out" / "README.md").read_text()
    for words in ("license: ", "fill in", "language: en", "| documents | 1,234 |",
                  "| learning rate | 0.0001 |", "| steps | 5,000 |", "| hours | 2.00 |",
                  "| masked lm accuracy | 0.4321 |"):  # fmt: skip
        assert words in card
    more = replace(prepare, config={"corpus": {"name": "wiki"}})
    huggingface.save(tmp_path / "both", CONFIG, state, vocab_folder, [train, prepare, more])
    card = (tmp_path / "both" / "README.md").read_text()
    for words in ("## Data, 1 of 2", "| corpus | books |", "## Data, 2 of 2", "| corpus | wiki |"):
        assert words in card
