"""The entries of a vocabulary, learnt from text: the same text gives the same, as the library alone does not."""

import sys
from collections.abc import Iterable

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.trainers import WordPieceTrainer

from pipeline.tokenization import alphabet
from pipeline.tokenization.wordpiece import SPECIAL

MINIMUM_COUNT = 2  # of a pair of word pieces that becomes an entry


def learn_entries(texts: Iterable[str], source: str, size: int, *, bars: bool = True) -> list[str]:
    """Learn a vocabulary for the words of tokenizer.json `source`, on a terminal with the library's `bars`.

    It has special tokens, letters, then pieces in the order learnt. The texts are iterated twice.
    """
    library = Tokenizer.from_str(source)
    # Without added tokens, as "[MASK]" in the text would be one word.
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = library.normalizer or normalizers.Sequence([])
    tokenizer.pre_tokenizer = library.pre_tokenizer or pre_tokenizers.BertPreTokenizer()
    letters = alphabet.count_letters(texts, tokenizer)
    kept, inside = alphabet.choose(letters, tokenizer, size)
    trainer = WordPieceTrainer(
        vocab_size=size,
        min_frequency=MINIMUM_COUNT,
        special_tokens=[*SPECIAL, *kept, *(f"##{letter}" for letter in inside)],
        initial_alphabet=kept,
        limit_alphabet=len(kept),
        show_progress=bars and sys.stderr.isatty(),
    )
    tokenizer.train_from_iterator((line for text in texts for line in text.split("\n")), trainer)
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    return sorted(ids, key=lambda entry: ids[entry])
