"""One is not many."""

import pytest

from pipeline.console.formatting import pluralize


@pytest.mark.parametrize(("number", "told"), [(0, "0 rows"), (1, "1 row"), (2301, "2,301 rows")])
def test_one_is_not_many(number: int, told: str) -> None:
    assert pluralize(number, "row") == told
