"""What any file of a store has to do, whatever serves it."""

import io
import random


def read_in_any_order(file, data):
    """Assert that all ways to read a file give its bytes, which are `data`."""
    draw = random.Random(2)
    with file.open() as opened:
        assert opened.read(8) == data[:8]
        for _ in range(20):
            start, size = draw.randrange(len(data)), draw.randrange(400_000)
            opened.seek(start)
            assert opened.read(size) == data[start : start + size]
        opened.seek(-100, io.SEEK_END)
        assert opened.read() == data[-100:]
    assert file.read_bytes() == data
