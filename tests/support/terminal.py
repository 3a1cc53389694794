"""What a person sees of what was written on a terminal."""

import re

ORDERS = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")  # colours, and moves of the cursor


def plain(drawn):
    """Return text without orders to the terminal."""
    return ORDERS.sub("", drawn.decode())
