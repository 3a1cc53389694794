"""An existing vocabulary: the tokenizer that its entries make."""

from pathlib import Path

from pipeline.common.schema import check
from pipeline.config import VocabConfig
from pipeline.errors import hub_cure
from pipeline.tokenization import normalization, tokenizer_folder, wordpiece


def load(config: VocabConfig) -> str:
    """Return the tokenizer.json of the vocabulary `existing`.

    A tokenizer.json may be of any kind, and defines its normalization, as a tokenizer_config.json
    does in a folder; that of a vocab.txt is configured, and `lowercase=null` derives it from the
    entries.

    Raises:
        InputError: the vocabulary was not found, or is not a BERT vocabulary.
        ConfigError: the configured normalization differs from that of the tokenizer.
    """
    path = Path(str(config.existing))
    check(path.exists(), f"does not exist{hub_cure(path)}", "existing", path)
    options: normalization.Options = {
        "lowercase": config.lowercase,
        "strip_accents": config.strip_accents,
        "split_chinese": None if config.split_chinese else False,
    }
    only_vocab = (path / "vocab.txt").is_file() and not (path / "tokenizer.json").is_file()
    if path.suffix == ".json" or (path.is_dir() and not only_vocab):
        source = wordpiece.read(path)
        normalization.combine_options(options, normalization.of_tokenizer(source), path)
        return source
    if path.is_dir():
        stated = normalization.read_options(path / tokenizer_folder.CONFIG)
        return wordpiece.read(path, normalization.combine_options(options, stated, path))
    vocab = wordpiece.read_vocab(path)
    wordpiece.check_special(vocab, path)
    return wordpiece.build(vocab, **options)
