"""The order of samples: every window, source and cut is a function of its place alone."""

import dataclasses
import time
from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.encoders.batch import Batch
from model.loader.device_copy import Copier
from model.loader.prefetch import prefetch
from model.loader.sample_order import Mixture, Order, even_cuts
from pipeline.errors import InputError
from tests.support.examples import examples


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12).filter(any), st.integers(1, 60), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_windows_tile_every_epoch(rows, window_rows, shuffle):
    order = Order(np.array(rows), 0, window_rows, shuffle)
    index, shards, total = 0, [], sum(rows)
    for _ in range(200):
        window = order.window(index)
        assert window.first == index
        assert index in window
        assert window.last - 1 in window
        assert sorted(window.order) == list(range(window.last - index))
        assert sum(rows[shard] for shard in window.shards) == window.last - index
        assert order.window(window.last - 1).first == index
        shards += window.shards.tolist()
        index = window.last
        if index >= total:
            break
        following = order.window(index).shards.tolist()
        assert not rows[shard_ := following[0]] or shard_ in window.following
    assert index == total
    assert {s for s in range(len(rows)) if rows[s]} <= set(shards)
    assert len(shards) == len(set(shards))


@given(
    st.lists(st.floats(0.01, 50), min_size=1, max_size=5),
    st.integers(0, 10**9),
    st.lists(st.integers(0, 400), min_size=1, max_size=4),
)
@settings(max_examples=examples(150), deadline=None)
def test_sources_take_turns_by_weight_wherever_one_looks(weights, start, sizes):
    """Split end to end, each source gives all its samples in order, at its share."""
    mixture = Mixture.by_weight(weights)
    share = [part / sum(mixture.shares) for part in mixture.shares]
    given = np.array(mixture.before(start))
    for size in sizes:
        source = mixture.sources(start, start + size)
        start += size
        given += np.bincount(source, minlength=len(weights))
        assert given.tolist() == mixture.before(start)
        assert (abs(given - start * np.array(share)) <= len(weights)).all()


@given(st.lists(st.integers(1, 500), min_size=1, max_size=4), st.data())
@settings(max_examples=examples(50), deadline=None)
def test_held_out_samples_come_once(samples, data):
    weights = data.draw(st.lists(st.floats(0.05, 5), min_size=len(samples), max_size=len(samples)))
    mixture = Mixture.by_weight(weights)
    count = mixture.once(samples)
    left = [n - used for used, n in zip(mixture.before(count), samples, strict=True)]
    assert 0 <= min(left) <= len(samples)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=80), st.integers(1, 90))
def test_cuts_make_runs_of_like_sums(sizes, parts):
    cuts = even_cuts(np.array(sizes), parts)
    assert (cuts[0], cuts[-1], len(cuts)) == (0, len(sizes), parts + 1)
    assert (np.diff(cuts) >= (0 if parts > len(sizes) else 1)).all()
    sums = [sum(sizes[a:b]) for a, b in pairwise(cuts.tolist())]
    if len(sizes) >= 4 * parts * max(sizes):  # so many that no run is forced to take a thing
        assert max(sums) - min(sums) <= 2 * max(sizes)


# Batches come to the device ahead of their use; on a CPU they stay where they are.


def batch(tokens=9):
    each = torch.arange(tokens)
    return Batch(each, each, each, torch.tensor([0, tokens]).int(), tokens, each[:3], each[:3], each[:1])


def test_on_a_cpu_nothing_is_copied():
    given = batch()
    copied = Copier(torch.device("cpu"))(given)
    assert copied.ready() is given
    assert copied.host is given


def test_every_tensor_of_a_batch_is_found():
    names = {one.name for one in dataclasses.fields(Batch)}
    assert batch().tensors().keys() == names - {"max_length"}


@pytest.mark.gpu
def test_on_a_gpu_a_copy_runs_beside_the_computation_and_arrives_whole():
    device = torch.device("cuda", torch.cuda.current_device())
    copy, given = Copier(device), batch(100_000)
    busy = torch.randn(4096, 4096, device=device)
    copied = copy(given)  # memory is pinned and got once
    torch.cuda.synchronize()
    for _ in range(50):
        busy = busy @ busy * 1e-4
    copied, running = copy(given), torch.cuda.Event()
    running.record()
    copied.arrived.synchronize()
    assert not running.query()  # the products are still being computed
    for name, tensor in copied.ready().tensors().items():
        assert tensor.device == device
        assert torch.equal(tensor.cpu(), getattr(given, name))


# A thread makes batches ahead: in order, no more than asked for, and its errors are not lost.


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
