"""WordPiece tokenization, identical to `tokenizers` and several times as fast."""
