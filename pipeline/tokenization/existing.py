"""An existing vocabulary: its entries, and the tokenizer that they make."""

from pathlib import Path

from pipeline.config import VocabConfig
from pipeline.tokenization import normalization, tokenizer_folder, wordpiece
from pipeline.tokenization.wordpiece import WordPiece


def load(config: VocabConfig) -> tuple[str, str]:
    """Return the contents of vocab.txt and tokenizer.json of the vocabulary `existing`.

    A tokenizer.json may be of any kind, and defines its normalization, as a tokenizer_config.json
    does in a folder; that of a vocab.txt is configured, and `lowercase=null` derives it from the
    entries.

    Raises:
        InputError: the vocabulary was not found, or is not a BERT vocabulary.
        ConfigError: the configured normalization differs from that of the tokenizer.
    """
    path = Path(str(config.existing))
    options: normalization.Options = {
        "lowercase": config.lowercase,
        "strip_accents": config.strip_accents,
        "split_chinese": None if config.split_chinese else False,
    }
    only_vocab = (path / "vocab.txt").is_file() and not (path / "tokenizer.json").is_file()
    if path.suffix == ".json" or (path.is_dir() and not only_vocab):
        source = wordpiece.read(path)
        normalization.combined(options, normalization.of_tokenizer(source), str(path))
    elif path.is_dir():
        stated = normalization.of_config(path / tokenizer_folder.CONFIG)
        source = wordpiece.read(path, normalization.combined(options, stated, str(path)))
    else:
        vocab = wordpiece.read_vocab(path)
        wordpiece.check_special(vocab, str(path))
        source = wordpiece.build(vocab, **options)
    return "".join(f"{entry}\n" for entry in WordPiece(source).vocab), source
