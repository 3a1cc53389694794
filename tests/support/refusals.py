"""What a mistake is answered with: the error's kind, and the fields that say where it is."""

from contextlib import contextmanager

import pytest


@contextmanager
def refused(kind, match=None, **fields):
    """Expect the error of the block, with these fields."""
    with pytest.raises(kind, match=match) as raised:
        yield raised
    found = {name: getattr(raised.value, name) for name in fields}
    assert found == fields, f"{found} is not {fields}"
