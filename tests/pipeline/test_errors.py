"""A user's mistake carries where it is, also from one process to another."""

import json
import pickle

import pytest

from pipeline.errors import InputError, Restart, UserError, error_from_record, named, read_errors, rendered

ERROR = InputError(f"bad; set {named('steps')}=1", "data", "x", path="a.txt", line=3, where="stage train")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("bad"), "bad"),
        (UserError("bad", "steps"), "steps: bad"),
        (UserError("bad", "steps", None), "steps=null: bad"),
        (UserError("bad", "steps", True, path="a.txt"), "steps=true: bad"),
        (UserError("bad", "steps", path="a.txt"), "a.txt: bad"),
        (UserError("bad", path="a.txt", line=3, where="stage train"), "stage train: a.txt, line 3: bad"),
        (ERROR, "stage train: data=x: bad; set steps=1"),
        (Restart("away", "rerun"), "away; rerun"),
        (Restart("", "rerun"), "rerun"),
    ],
)
def test_the_sentence_is_made_of_the_fields(error, said):
    assert str(error) == said


def test_fields_survive_the_way_between_processes_and_a_cure_can_be_said_in_other_words():
    for error in (pickle.loads(pickle.dumps(ERROR)), error_from_record(json.loads(json.dumps(ERROR.record())))):
        assert isinstance(error, InputError)
        assert (str(error), error.record()) == (str(ERROR), ERROR.record())
    assert rendered(ERROR.problem, lambda key: f"train.{key}") == "bad; set train.steps=1"


def test_records_are_found_among_other_lines():
    log = (
        f"text\n0: {json.dumps(ERROR.record())}\n"
        + '{"kind": "other"}\n{"kind": \n'
        + json.dumps(Restart("a").record())
    )
    assert list(map(str, read_errors(log))) == [str(ERROR), "a"]


def test_a_record_has_no_secrets():
    assert "word" not in json.dumps(InputError("bad", path="https://me:word@host/a").record())
