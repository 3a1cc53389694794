"""No shard is more than rows of ids, or one error that names the file."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from pipeline.errors import InputError
from pipeline.shards import ShardInfo, open_shard, schema, write_shard
from tests.security.hostile import damaged, hammer

pytestmark = pytest.mark.fuzz

INFO = ShardInfo(split="train", pairs="nsp", tokenizer="abc", vocab_size=100, sequence_length=16, seed=0)


def whole(folder, info=INFO):
    lengths = np.arange(1, 14)
    tokens, starts = np.arange(lengths.sum(), dtype=np.uint16) % 100, np.concatenate([[0], np.cumsum(lengths)])
    write_shard(folder / "whole", info, tokens, starts, lengths // 2, lengths % 2 == 0)
    return (folder / "whole").read_bytes()


def read(path):
    """A shard that opens is one that a loader can index with what it says."""
    try:
        shard = open_shard(path)
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    lengths = np.diff(shard.offsets)
    assert len(shard.offsets) == shard.rows + 1
    assert len(shard.a_len) == len(shard.is_random_next) == shard.rows
    assert (lengths >= 0).all()
    assert (shard.a_len <= lengths).all()
    assert shard.offsets[0] >= 0
    assert shard.offsets[-1] <= len(shard.values)
    assert shard.is_random_next.dtype == np.bool_
    assert int(shard.ids(0, len(shard.values)).sum(dtype=np.int64)) >= 0


def test_a_damaged_shard_is_whole_or_named(tmp_path):
    seeds = [whole(tmp_path), whole(tmp_path, dataclasses.replace(INFO, words="jieba"))]

    def check(data):
        (tmp_path / "train-0.arrow").write_bytes(data)
        read(tmp_path / "train-0.arrow")

    words = [b"ARROW1\x00\x00", b"shard/1", b"shard/2", b'"seed": 1e999', b"\xff" * 8]
    hammer(check, damaged(seeds, words))


def test_a_shard_with_any_numbers_in_it_is_whole_or_named(tmp_path):
    """As only somebody who means harm would write it: the Arrow file itself is sound."""

    def check(offsets, a_len, nulls):
        rows = min(len(offsets) - 1, len(a_len))
        try:
            bounds = [None, pa.py_buffer(np.array(offsets[: rows + 1], np.int32))]
            tokens = [pa.array(np.zeros(20, np.uint16))]
            ids = pa.ListArray.from_buffers(pa.list_(pa.uint16()), rows, bounds, children=tokens)
        except pa.ArrowInvalid:
            return  # not even Arrow would write it
        flags = pa.array([None if nulls else True] * rows, pa.bool_())
        columns = [ids, pa.array(a_len[:rows], pa.uint16()), flags]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema(INFO))
        path = tmp_path / "train-0.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        read(path)

    bounds = st.one_of(st.integers(-2, 24), st.just(2**31 - 1))
    lengths = st.lists(st.integers(0, 30), min_size=1, max_size=6)
    hammer(check, st.lists(bounds, min_size=2, max_size=6), lengths, st.booleans())
