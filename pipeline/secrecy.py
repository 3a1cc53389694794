"""What must not be in a log or a manifest: passwords in addresses, and keys of the environment."""

import os
import re

HIDDEN = "***"
SHORTEST = 8  # characters; a shorter value may be any word
_ADDRESS = re.compile(r"(?<=://)[^\s/@\"'\\]+@")
_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)$", re.IGNORECASE)


def hide(text: str) -> str:
    """The text with stars for secrets, wherever they come from.

    These are `user:password@` of addresses, and the values of the environment's variables whose
    names end in KEY, TOKEN, SECRET or PASSWORD.
    """
    text = _ADDRESS.sub(f"{HIDDEN}@", text)
    for name, value in os.environ.items():
        if len(value) >= SHORTEST and _NAME.search(name):
            text = text.replace(value, HIDDEN)
    return text
