"""A user's mistake carries where it is, also from one process to another."""

import pickle

from pipeline.common.errors import InputError


def test_fields_survive_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(InputError("a.txt line 3: bad", path="a.txt", line=3)))
    assert (str(error), error.key, error.path, error.line) == ("a.txt line 3: bad", None, "a.txt", 3)
