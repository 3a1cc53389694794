"""The order of samples: every window, source and cut is a function of its place alone."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from model.loader.sample_order import Mixture, Order, even_cuts
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
