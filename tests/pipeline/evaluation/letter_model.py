"""A tiny model whose words are letters."""

from pipeline.tokenization.wordpiece import build
from tests.model.sizes import write_model


def write_letter_model(temporary, config, words):
    """Write a model with random weights and the vocabulary `words`; return its folder."""
    vocab = temporary.mktemp("vocab")
    (vocab / "vocab.txt").write_text("\n".join(words) + "\n")
    (vocab / "tokenizer.json").write_text(build(words, lowercase=True))
    return write_model(temporary.mktemp("run") / "convert", config, vocab)
