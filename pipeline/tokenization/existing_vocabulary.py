"""An existing vocabulary: the tokenizer that its entries make."""

import re
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pipeline.common.schema import check
from pipeline.config import VocabConfig
from pipeline.errors import InputError, UserError, hub_cure, readable
from pipeline.storage import strict_json
from pipeline.tokenization import known_models, normalization, tokenizer_folder, wordpiece

PIECES = "sentencepiece.bpe.model"  # under other names XLM-R's and CamemBERT's classes find no words
# It asks SentencePiece how a model cuts text; transformers 5 takes each for Unigram, and cuts BPE otherwise.
OLD = "python -m venv OLD && OLD/bin/pip install 'transformers<5' sentencepiece protobuf && OLD/bin/"
SCORED = re.compile(rb"[^\t\n]+\t-?\d[\d.e+-]*\r?")  # a line of the list that SentencePiece writes


def refuse_others(path: Path) -> None:
    """Refuse the files of other tokenizers, which transformers can rewrite.

    Raises:
        InputError: it is a model or a list of SentencePiece, or a folder with it or vocab.json alone.
    """
    folder = path if path.is_dir() else path.parent
    if path.is_dir():
        own = any((path / name).is_file() for name in ("tokenizer.json", "vocab.txt"))
        model = not own and next(
            (one for one in [path / "vocab.json", *sorted(path.glob("*.model"))] if one.is_file()), None
        )
    else:
        with readable(path), path.open("rb") as file:
            lines = [line.rstrip(b"\n") for line in file.readlines(2**16)] if path.suffix != ".model" else []
        model = path if path.suffix == ".model" or (lines and all(map(SCORED.fullmatch, lines))) else None
    if model:
        described = any((folder / name).is_file() for name in ("tokenizer_config.json", "config.json"))
        if not described and model.name != "vocab.json":  # transformers would take some other tokenizer's rules
            raise InputError(
                "is of SentencePiece, without the files that say how its model reads text; set existing= to the "
                "folder of that model, with tokenizer_config.json or tokenizer.json",
                path=model,
            )
        if model.name == "vocab.json" and not described and not (folder / "merges.txt").is_file():
            why = "has no merges.txt next to it; for WordPiece, write its tokens by their ids, one a line, as vocab.txt"
            raise InputError(why, path=model)
        kind = "AutoTokenizer" if described else "RobertaTokenizer"
        rewrite = f"from transformers import {kind} as A; A.from_pretrained('{folder}').save_pretrained('NEW')"
        command = f'python -c "{rewrite}"'
        if model.suffix == ".model":
            copied = "" if model.name == PIECES else f"cp '{model}' '{folder / PIECES}' && "
            command = f"{copied}{OLD}{command}"
        kept = (
            [model.name, "merges.txt"] if model.name == "vocab.json" else [PIECES] if model.suffix == ".model" else []
        )
        command += "".join(f" && cp '{folder / name}' NEW" for name in kept)  # other programs read no tokenizer.json
        raise InputError(f"is of another tokenizer; run {command}, then set existing=NEW", path=model)


def read_model(folder: Path) -> dict[str, Any]:
    """Return the config.json of a model's folder, empty if there is none.

    Raises:
        InputError: No later command takes the model or its weights, or its tokenizer is code of its own.
    """
    path, own = folder / tokenizer_folder.MODEL, folder / "tokenizer.json"
    if (folder / "bpe.codes").is_file():  # PhoBERT's and BERTweet's vocab.txt has words and their counts
        raise InputError("its tokenizer is code of its own (bpe.codes); choose another model", "existing", folder)
    if not path.is_file():
        return {}
    content = strict_json.read_object(path)
    cure = f"; for a new model with its tokenizer set existing={own}" if own.is_file() else ""
    known_models.check(content, path, "existing", cure)
    known_models.check_decoder(folder)
    return content


def load(config: VocabConfig) -> str:
    """Return the tokenizer.json of the vocabulary `existing`.

    A tokenizer.json may be of any kind, and defines its normalization, as a tokenizer_config.json
    does in a folder; that of a vocab.txt is configured, and `lowercase=null` derives it from the
    entries.

    Raises:
        InputError: the vocabulary was not found, is not a BERT vocabulary, or has no words.
        ConfigError: the configured normalization differs from that of the tokenizer.
    """
    path = Path(str(config.existing))
    check(path.exists(), f"does not exist{hub_cure(path)}", "existing", path)
    model = read_model(path)
    refuse_others(path)
    options: normalization.Options = {
        "lowercase": config.lowercase,
        "strip_accents": config.strip_accents,
        "split_chinese": None if config.split_chinese else False,
    }
    only_vocab = (path / "vocab.txt").is_file() and not (path / "tokenizer.json").is_file()
    if not path.is_dir() and path.suffix != ".json":
        vocab = wordpiece.read_vocab(path)
        wordpiece.check_special(vocab, path)
        return wordpiece.build(vocab, **options)
    if only_vocab:
        stated = normalization.read_options(path / tokenizer_folder.CONFIG)
        source = wordpiece.read(path, normalization.combine_options(options, stated, path))
    else:
        source = wordpiece.read(path)
        normalization.combine_options(options, normalization.of_tokenizer(source), path)
    words = Tokenizer.from_str(source)
    ids = words.get_vocab(with_added_tokens=True)
    special = {token.content for token in words.get_added_tokens_decoder().values() if token.special}
    named = f"has no words but {len(special)} special tokens; make it again with all its files"
    check(set(ids) > special, named, "existing", path)
    known_models.check_padding(model, ids[wordpiece.special_names(ids)[0]], path / tokenizer_folder.MODEL)
    return source


def count_entries(config: VocabConfig) -> int:
    """Return the number of entries of a vocabulary, those of `additions` apart."""
    if config.existing is None:
        return config.size
    try:
        return wordpiece.WordPiece(load(config)).size + config.learn
    except UserError:  # the stage itself will say it
        return config.size
