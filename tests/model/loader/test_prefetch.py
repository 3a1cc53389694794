"""A thread makes batches ahead: in order, no more than asked for, and its errors are not lost."""

import time
from contextlib import closing

import pytest

from model.loader.prefetch import prefetch
from pipeline.errors import InputError


def test_prefetch_keeps_the_order():
    def slow():
        for item in range(5):
            time.sleep(0.02)
            yield item

    ahead = prefetch(slow(), depth=2)
    assert list(ahead) == [0, 1, 2, 3, 4]


def test_prefetch_runs_no_more_than_its_depth_ahead():
    made = []
    with closing(prefetch((made.append(item) or item for item in range(100)), depth=3)) as ahead:
        assert next(ahead) == 0
        time.sleep(0.1)
        assert len(made) == 4


def test_prefetch_hands_errors_to_the_reader():
    def broken():
        yield 1
        raise InputError("shard gone")

    ahead = prefetch(broken(), depth=2)
    assert next(ahead) == 1
    for _ in range(2):
        with pytest.raises(InputError, match="shard gone"):
            next(ahead)
