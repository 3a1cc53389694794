"""The share that is advised holds out as many documents as it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.shards.holdout import LOWEST, LowestHashes, document_hash, is_held_out, sensible_count

DIGESTS = st.lists(st.binary(min_size=16, max_size=16), min_size=LOWEST, max_size=60, unique=True)


@given(DIGESTS, st.data())
def test_the_advised_share_holds_out_what_was_asked(digests: list[bytes], data: st.DataObject) -> None:
    lowest, parts = LowestHashes(), [LowestHashes(), LowestHashes()]
    for number, digest in enumerate(digests):
        parts[number % 2].add(digest)
    for part in parts:
        lowest.merge(list(part))
    if len(lowest) < LOWEST or len({digest[:7] for digest in digests}) < len(digests):
        return  # as good as equal
    count = data.draw(st.integers(1, LOWEST - 1))
    share = lowest.share_for(count)
    assert 0 < share < 1
    assert sum(is_held_out(digest, share) for digest in digests) == count


def test_the_advised_share_is_short() -> None:
    lowest, places = LowestHashes(), list[float]()
    for number in range(1000):
        lowest.add(digest := document_hash(f"document {number}"))
        places = sorted([*places, int.from_bytes(digest[:8], "big") / 2**64])[:LOWEST]
        assert lowest == places
    for count in range(1, LOWEST):
        assert len(str(lowest.share_for(count))) <= 8


@pytest.mark.parametrize(("documents", "held"), [(2, 1), (3, 1), (4, 2), (8, 4), (1000, 4)])
def test_some_documents_are_left_to_train_on(documents: int, held: int) -> None:
    assert sensible_count(documents) == held
