"""How many bytes of text the entries of a vocabulary are, by which vocabularies can be compared."""

import json
import re

import numpy as np
import numpy.typing as npt

from pipeline.tokenization.coverage import as_entries
from pipeline.tokenization.wordpiece import WordPiece

BYTE = re.compile("<0x[0-9A-F]{2}>")  # an entry for a byte without another one


def piece_bytes(tokenizer: WordPiece) -> npt.NDArray[np.int64]:
    """Return the bytes of UTF-8 of the text of each entry, without white space `(V,)`.

    Spaces are left out, as only some vocabularies have them in their entries. A special token has
    none, the unknown one too.
    """
    library = tokenizer.library
    spec = json.loads(library.to_str())
    model, added = spec["model"], {token.content for token in library.get_added_tokens_decoder().values()}
    before, behind = (model.get(key) or "" for key in ("continuing_subword_prefix", "end_of_word_suffix"))
    by_byte = "ByteLevel" in f"{spec['normalizer']} {spec['pre_tokenizer']}"
    spaces = set(as_entries(library, "x \tx\n\rx")) - {"x"}  # the letters that entries have for them

    def size(entry: str) -> int:
        if entry not in added:
            entry = "".join(a for a in entry.removeprefix(before).removesuffix(behind) if a not in spaces)
            if by_byte or (model.get("byte_fallback") and BYTE.fullmatch(entry)):  # letters are bytes
                return len(entry) if by_byte else 1
        return len("".join(entry.split()).encode())

    sizes = np.array([*map(size, tokenizer.vocab)], np.int64)
    sizes[tokenizer.special_ids] = 0
    return sizes
