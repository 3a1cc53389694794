"""What strangers may send: files that were whole once, and soups of the pieces of a format."""

import os
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))  # `make fuzz` sets it


def hammer(check, *inputs, examples=120):
    """Try `check` on drawn inputs: a fixed few in the tests, always new ones in `make fuzz`."""
    fixed = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
    chosen = settings(max_examples=2000 if SECONDS else examples, derandomize=not SECONDS, **fixed)
    for_seconds(lambda: chosen(given(*inputs)(check))())


def for_seconds(once):
    """Call `once`, and in `make fuzz` again until the seconds are over."""
    began = time.monotonic()
    once()
    while time.monotonic() - began < SECONDS:
        once()


@st.composite
def damaged(draw, seeds, dictionary):
    """A whole file after up to six blows: bytes flipped, cut out, doubled, put in, overwritten."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.one_of(st.integers(0, 8), st.integers(0, 400)))
        blow = draw(st.sampled_from(["flip", "cut", "double", "insert", "word", "number", "end"]))
        if blow == "flip" and at < len(data):
            data[at] ^= draw(st.integers(1, 255))
        elif blow == "cut":
            del data[at : at + length]
        elif blow == "double":
            data[at:at] = data[at : at + length]
        elif blow == "insert":
            data[at:at] = draw(st.binary(max_size=8))
        elif blow == "word":
            data[at:at] = draw(st.sampled_from(dictionary))
        elif blow == "number":
            size = draw(st.sampled_from([1, 2, 4, 8]))
            value = draw(st.sampled_from([0, 1, -1, 2 ** (8 * size - 1) - 1]))
            data[at : at + size] = value.to_bytes(size, "little", signed=True)
        elif blow == "end":
            del data[at:]
    return bytes(data)


def soup(pieces, most=60):
    """Pieces of a format in any order, and any text between them."""
    piece = st.one_of(st.sampled_from(pieces), st.sampled_from(pieces), st.text(max_size=12))
    return st.lists(piece, max_size=most).map("".join)
