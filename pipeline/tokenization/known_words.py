"""What can be known of a tokenizer's results without asking it, and what must be asked."""

from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers


def uncached_reason(spec: dict[str, Any]) -> str | None:
    """Return why text cannot be cut into pieces for this tokenizer.json; None if it can."""
    wanted = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}
    for part, kind in (wanted | {"model": "WordPiece"}).items():
        found = (spec[part] or {}).get("type", "none")
        if found != kind:
            return f"its {part} is {found}, not {kind}"
    words = [token["content"] for token in spec["added_tokens"] if not token["special"]]
    return f"it has added words ({words[0]!r} first)" if words else None


def ascii_tokenizer(tokenizer: Tokenizer, lowercase: bool) -> Tokenizer:
    """Return an equivalent tokenizer for pieces in printable ASCII, twice as fast.

    It need not handle accents, control characters, Chinese characters or punctuation.
    """
    found = Tokenizer(tokenizer.model)
    if lowercase:
        found.normalizer = normalizers.Lowercase()
    found.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return found


def whole_words(spec: dict[str, Any]) -> dict[str, int]:
    """Return the ids of words that are one token, as longest match first would find.

    Only words of ASCII letters and digits, which normalization leaves unchanged once lowercased.
    """
    lowercase, most = spec["normalizer"]["lowercase"], spec["model"]["max_input_chars_per_word"]
    return {
        entry: number
        for entry, number in spec["model"]["vocab"].items()
        if entry.isascii() and entry.isalnum() and len(entry) <= most
        and not (lowercase and entry != entry.lower())
    }  # fmt: skip
