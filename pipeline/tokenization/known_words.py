"""What can be known of a tokenizer's results without asking it, and what must be asked."""

from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers

# WordPiece takes a longer word for unknown. Text of Thai and others has no spaces between words.
LONGEST_WORD = 100
# A vowel written before its consonant stays with this, as do marks, vowels and stacked letters with
# the one before. Words that are not too long are one match.
_BEFORE = r"\u0E40-\u0E44\u0EC0-\u0EC4\u1039\u17D2\u1A60\uAABB\uAABC"
_AFTER = r"\p{M}\u0E30\u0E32\u0E33\u0E45\u0E46\u0EB0\u0EB2\u0EB3\u0EC6"
LONG_WORDS = rf".{{1,{LONGEST_WORD}}}(?<![{_BEFORE}])(?![{_AFTER}])|.{{1,{LONGEST_WORD}}}"


# What may be in front of the model, in this order: a mark, and the types of its members.
_KNOWN = {
    "normalizer": (["BertNormalizer"], ["NFC", "BertNormalizer"]),
    "pre_tokenizer": (["BertPreTokenizer"], ["BertPreTokenizer", LONG_WORDS]),
    "model": (["WordPiece"],),
}


def members(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the members of a sequence in a tokenizer.json, or the part alone."""
    if part is None:
        return []
    inner = part.get("normalizers") or part.get("pretokenizers")
    return [part] if inner is None else [each for one in inner for each in members(one)]


def uncached_reason(spec: dict[str, Any]) -> str | None:
    """Return why text cannot be cut into pieces for this tokenizer.json; None if it can."""
    for part, known in _KNOWN.items():
        found = [_name(each) for each in members(spec[part])]
        if found not in known:
            return f"its {part} is {', '.join(found) or 'none'}, not {known[0][0]}"
    words = [token["content"] for token in spec["added_tokens"] if not token["special"]]
    return f"it has added words ({words[0]!r} first)" if words else None


def _name(part: dict[str, Any]) -> str:
    """Return the type of a part; of one that splits by a regular expression, this."""
    splits = part["type"] == "Split" and part["behavior"] == "Isolated" and not part["invert"]
    return str(part["pattern"].get("Regex", "Split") if splits else part["type"])


def ascii_tokenizer(tokenizer: Tokenizer, lowercase: bool) -> Tokenizer:
    """Return an equivalent tokenizer for pieces in printable ASCII, twice as fast.

    It need not handle accents, control characters, Chinese characters, punctuation or words of more
    than `LONGEST_WORD` characters.
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
    lowercase = members(spec["normalizer"])[-1]["lowercase"]
    most = spec["model"]["max_input_chars_per_word"]
    return {
        entry: number
        for entry, number in spec["model"]["vocab"].items()
        if entry.isascii() and entry.isalnum() and len(entry) <= most and not (lowercase and entry != entry.lower())
    }
