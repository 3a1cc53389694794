"""Redact passwords in addresses and secrets of the environment from logs and manifests."""

import json
import os
import re

HIDDEN = "***"
SHORTEST = 8  # characters; a shorter value may be an ordinary word
# What precedes the @ of abfs://CONTAINER@ACCOUNT is a name.
_ADDRESS = re.compile(r"(?<=://)(?<!\babfs://)(?<!\babfss://)[^\s/\"'\\]+@", re.IGNORECASE)
_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CONNECTION_STRING)$", re.IGNORECASE)


def redact(text: str) -> str:
    """Return the text with secrets replaced by asterisks.

    Secrets are `user:password@` in addresses, and the values of environment variables whose names
    end in KEY, TOKEN, SECRET, PASSWORD, PASSWD or CONNECTION_STRING, verbatim, JSON-encoded or as
    Python shows them.
    """
    text = _ADDRESS.sub(f"{HIDDEN}@", text)
    values = {
        value for name, value in os.environ.items()
        if len(value) >= SHORTEST and _NAME.search(name)
    }  # fmt: skip
    for value in sorted(values, key=len, reverse=True):  # one may be the beginning of another
        in_json = (json.dumps(value, ensure_ascii=plain)[1:-1] for plain in (True, False))
        for written in {value, repr(value)[1:-1], *in_json}:
            text = text.replace(written, HIDDEN)
    return text
