"""What must not be in a log or a manifest: passwords in addresses, and keys of the environment."""

import json
import os
import re

HIDDEN = "***"
SHORTEST = 8  # characters; a shorter value may be any word
_ADDRESS = re.compile(r"(?<=://)[^\s/@\"'\\]+@")
_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)$", re.IGNORECASE)


def redact(text: str) -> str:
    """The text with stars for secrets, wherever they come from.

    These are `user:password@` of addresses, and the values of the environment's variables whose
    names end in KEY, TOKEN, SECRET, PASSWORD or PASSWD, as they are and as JSON writes them.
    """
    text = _ADDRESS.sub(f"{HIDDEN}@", text)
    for name, value in os.environ.items():
        if len(value) >= SHORTEST and _NAME.search(name):
            in_json = (json.dumps(value, ensure_ascii=plain)[1:-1] for plain in (True, False))
            for written in {value, *in_json}:
                text = text.replace(written, HIDDEN)
    return text
