"""A byte-level BPE with BERT's special tokens, like those of published ModernBERTs."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipeline.tokenization.wordpiece import SPECIAL, WordPiece


def learn_byte_level(texts, prefix_space=False):
    """Return the tokenizer learnt from texts, whose mask takes the space to its left."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    library.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    quiet = {"special_tokens": list(SPECIAL), "show_progress": False, "initial_alphabet": letters}
    trainer = trainers.BpeTrainer(vocab_size=400, **quiet)
    library.train_from_iterator(texts, trainer)
    library.add_special_tokens([AddedToken("[MASK]", special=True, lstrip=True)])
    return WordPiece(library.to_str())
