"""Normalization of an existing tokenizer: capitals, accents, Chinese characters; what its folder states of it."""

import json
import unicodedata
from pathlib import Path
from typing import Any

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
    stated = {name: settings.get(name) for name in NAMES}
    for name, value in stated.items():
        if value is not None and not isinstance(value, bool):
            raise InputError(f"{name} must be true, false or null, not {json.dumps(value)}; fix it", path=path)
    return {NAMES[name]: value for name, value in stated.items()}


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


def as_stated(source: str, spec: dict[str, Any], roles: tuple[str, ...], folder: Path, is_bert: bool) -> str:
    """Return a tokenizer.json, `spec` when it is parsed, as transformers reads it in the folder of a model.

    Special tokens that have none of the `roles` here, as markers of entities, are found in text.
    BertTokenizer (`is_bert`) takes its options from tokenizer_config.json, RobertaTokenizer the space before a text. A
    BERT whose tokenizer gives no segments has one for both texts of a pair.
    """
    stated = tokenizer_folder.read_object(folder / tokenizer_folder.CONFIG)
    own, cut, made = dict(spec["normalizer"] or {}), dict(spec["pre_tokenizer"] or {}), dict(spec)
    options = read_options(folder / tokenizer_folder.CONFIG) if is_bert else {}
    tokens = [token | {"special": token["special"] and token["content"] in roles} for token in spec["added_tokens"]]
    if own.get("type") == "BertNormalizer":
        names = {"split_chinese": "handle_chinese_chars"}
        own |= {names.get(key, key): value for key, value in options.items() if value is not None}
    if cut.get("type") == "ByteLevel" and str(stated.get("tokenizer_class")).startswith("Roberta"):
        made["pre_tokenizer"] = cut | {"add_prefix_space": stated.get("add_prefix_space") is True}
    of_bert = tokenizer_folder.read_object(folder / tokenizer_folder.MODEL).get("model_type") == "bert"
    if of_bert and "token_type_ids" not in (stated.get("model_input_names") or ["token_type_ids"]):
        frame = json.dumps(spec["post_processor"])
        made["post_processor"] = json.loads(frame, object_hook=lambda one: one | dict.fromkeys({*one} & {"type_id"}, 0))
    made |= {"added_tokens": tokens, "normalizer": own or None}
    return source if made == spec else json.dumps(made, ensure_ascii=False, indent=2)
