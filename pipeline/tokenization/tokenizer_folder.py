"""What the files of a model's folder say of its tokenizer: its class, added tokens, and what other programs read."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from pipeline.common.tables import read_table
from pipeline.errors import InputError
from pipeline.storage import strict_json
from pipeline.storage.file_search import leads_out, say_left_out

CONFIG, MODEL, ADDED = "tokenizer_config.json", "config.json", "added_tokens.json"
# Those that other programs make the tokenizer of.
ORIGINALS = ("sentencepiece.bpe.model", "spm.model", "spiece.model", "tokenizer.model", "vocab.json", "merges.txt")

_TABLE = read_table(__file__, "tokenizer_classes.yaml")
BERTS, GENERAL, PYTHON = (frozenset(_TABLE[kind].split()) for kind in ("berts", "general", "python"))


def check_class(folder: Path, names: tuple[str, ...], wordpiece: bool, library: bool) -> bool:
    """Check that a folder's class of tokenizer cuts text as is done here; return whether it is BERT's.

    Args:
        folder: of the vocabulary.
        names: of its five special tokens.
        wordpiece: whether the vocabulary is of WordPiece.
        library: whether it is a tokenizer.json, which says how text is cut.

    Raises:
        InputError: the class is another one, or its own code.
    """
    place, model = folder / CONFIG, folder / MODEL
    stated, sizes = read_object(place), read_object(model)
    code = stated.get("auto_map")
    if isinstance(code, dict) or code is None:
        code = (code or {}).get("AutoTokenizer") or _dict(sizes.get("auto_map")).get("AutoTokenizer")
    if code:
        raise _refused(place, f"auto_map names code of its own for the tokenizer ({code})")
    for key, value in _TABLE["settings"].items():
        if stated.get(key) not in (None, value):
            text = json.dumps(stated[key], ensure_ascii=False)
            raise _refused(place, f"{key} is {text}, which is not supported")
    for role, name in zip(("cls_token", "sep_token", "mask_token"), names[2:], strict=True):
        own = _dict(stated.get(role)).get("content") or stated.get(role)
        if own not in (None, name):
            raise _refused(place, f"{role} is {own!r}, not {name!r}")
    named = str(stated.get("tokenizer_class") or sizes.get("tokenizer_class") or "Bert")
    kind = named.removesuffix("Fast").removesuffix("Tokenizer")
    if kind not in BERTS and not (library and (kind in GENERAL or not (wordpiece or kind in PYTHON))):
        raise _refused(place, f"tokenizer_class {named} cuts text in a way that is not supported")
    return kind in BERTS


def _refused(place: Path, fault: str) -> InputError:
    return InputError(
        f"{fault}; use a model with BertTokenizer, or one whose tokenizer.json does it all with tokenizer_class "
        "PreTrainedTokenizerFast",
        path=place,
    )


def added_tokens(folder: Path) -> dict[int, AddedToken]:
    """Return the tokens that files of a folder add to its vocabulary, by id and in that order.

    They are no special tokens here, as they are found in text; so does transformers.

    Raises:
        InputError: a file is broken.
    """
    stated = read_object(folder / CONFIG)
    place = folder / (CONFIG if "added_tokens_decoder" in stated else ADDED)
    try:
        if place.name == CONFIG:
            tokens = {
                int(number): AddedToken(**{**fields, "special": False})
                for number, fields in stated["added_tokens_decoder"].items()
            }
        else:
            special = [*(stated.get("additional_special_tokens") or []), *(stated.get("extra_special_tokens") or [])]
            tokens = {
                int(number): AddedToken(content, normalized=content not in special)
                for content, number in read_object(place).items()
            }
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"its added tokens cannot be read ({error})", path=place) from error
    return dict(sorted(tokens.items()))


def keep_files(source: Path, target: Path, names: Iterable[str] = ORIGINALS) -> None:
    """Copy those files of a folder that are there; links that lead out of it are left out, and said."""
    there = [source / name for name in names if (source / name).is_file()]
    kept = [path for path in there if not leads_out(source, path)]
    for path in kept:
        shutil.copyfile(path, target / path.name)
    say_left_out(str(source), len(there) - len(kept))


def read_object(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file; an empty one without a file.

    Raises:
        InputError: the file is broken.
    """
    return strict_json.read_object(path) if path.exists() else {}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
