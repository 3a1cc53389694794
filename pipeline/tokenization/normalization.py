"""Normalization of an existing tokenizer: capitals, accents, Chinese characters."""

import json
import unicodedata
from pathlib import Path

from tokenizers import Tokenizer

from pipeline.errors import ConfigError, InputError
from pipeline.tokenization import tokenizer_folder

# Options of `vocab`, by their names in a tokenizer_config.json.
NAMES = {"do_lower_case": "lowercase", "strip_accents": "strip_accents", "tokenize_chinese_chars": "split_chinese"}
Options = dict[str, bool | None]  # by the keys of `vocab`; None: not stated


def read_options(path: Path) -> Options:
    """Return what the tokenizer_config.json next to a vocab.txt states; nothing if there is none.

    Raises:
        InputError: the file exists but is broken.
    """
    settings = tokenizer_folder.read_object(path)
    found = {name: settings.get(name) for name in NAMES}
    for name, value in found.items():
        if value is not None and not isinstance(value, bool):
            raise InputError(f"{name} must be true, false or null, not {json.dumps(value)}; fix it", path=path)
    return {NAMES[name]: value for name, value in found.items()}


def of_tokenizer(source: str) -> Options:
    """Return what a tokenizer.json of any kind does to text."""
    normalizer = Tokenizer.from_str(source).normalizer

    def normalized(text: str) -> str:
        return str(normalizer.normalize_str(text)) if normalizer else text

    return {
        "lowercase": "A" not in normalized("A"),
        "strip_accents": "\u0301" not in unicodedata.normalize("NFD", normalized("é")),
        "split_chinese": len(normalized("中文").split()) > 1,
    }


def combine_options(wanted: Options, stated: Options, place: Path) -> Options:
    """Return the options of an existing tokenizer at `place`: `stated`, else `wanted`.

    Raises:
        ConfigError: an option is both, and differs.
    """
    for key, value in wanted.items():
        if value is not None and stated[key] not in (None, value):
            own = json.dumps(stated[key])
            raise ConfigError(
                f"the tokenizer {place} has {own}; leave {key} out, or name a vocab.txt alone",
                key,
                json.dumps(value),
                path=place,
            )
    return {key: wanted[key] if value is None else value for key, value in stated.items()}
