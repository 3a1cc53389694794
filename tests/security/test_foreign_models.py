"""A model of strangers, whatever its files claim, is read or refused in one line."""

import json
import sys

import pytest
import torch
from hypothesis import strategies as st

from model.config import ModelConfig
from model.encoders.architectures import build_model
from model.huggingface import bert_format, vocabulary
from model.huggingface.bert_format import parts_of, read_file
from model.training import initial_weights
from pipeline.errors import InputError
from pipeline.storage import strict_json
from pipeline.tokenization.normalization import read_options
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build
from tests.security.hostile import damaged, hammer
from tests.support.refusals import refused

ENTRIES = [*SPECIAL, "words", "##s", "."]
SIZE = ModelConfig(name="t", layers=1, hidden=8, heads=1, feed_forward=8, vocab_size=len(ENTRIES))
DEEP = "[" * 200_000


@pytest.fixture
def model(tmp_path):
    """A folder in Hugging Face's format."""
    (tmp_path / "vocab").mkdir()
    (tmp_path / "vocab" / "tokenizer.json").write_text(build(ENTRIES, lowercase=True))
    state = build_model(SIZE).state_dict()
    bert_format.save(tmp_path / "model", SIZE, state, tmp_path / "vocab")
    return tmp_path / "model"


def change(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


HUGE = [(key, 10**9) for key in ("num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings")]
HUGE += [("num_hidden_layers", 2), ("intermediate_size", 10**30), ("vocab_size", 10**400), ("vocab_size", -1)]


@pytest.mark.parametrize(("key", "value"), HUGE)
def test_sizes_are_compared_with_the_tensors_first(model, key, value):
    sys.set_int_max_str_digits(0)
    change(model / "config.json", **{key: value})
    sys.set_int_max_str_digits(4300)
    with pytest.raises(InputError) as caught:
        bert_format.load(model)
    assert caught.value.path == str(model / "config.json") or value == 2


def test_a_modernbert_of_any_length_is_refused(model):
    modern = {"model_type": "modernbert", "hidden_activation": "gelu", "norm_eps": 1e-5}
    change(model / "config.json", max_position_embeddings=10**9, **modern)
    with pytest.raises(InputError):
        initial_weights.size_of(model)


@pytest.mark.parametrize("kind", [None, [], {"a": 1}, 3])
def test_an_architecture_that_is_no_name_is_refused(model, kind):
    change(model / "config.json", model_type=kind, architectures=kind)
    with pytest.raises(InputError, match="architecture"):
        bert_format.load(model)


def test_tensors_named_by_numbers_are_ignored_and_one_that_repeats_few_bytes_is_refused(tmp_path):
    torch.save({1: torch.ones(2), "a": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    assert list(read_file(tmp_path / "pytorch_model.bin")) == ["a"]
    torch.save({"a": torch.ones(1).expand(10**9, 10**9)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model\.bin: a "):
        read_file(tmp_path / "pytorch_model.bin")


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 200_000, '{"weight_map":' + DEEP, "[]", "1", ""])
def test_any_json_is_an_object_or_refused(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    for read in (strict_json.read_object, parts_of, read_options):
        with refused(InputError, path=str(path)) as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_what_is_parsed_can_be_walked_through():
    assert strict_json.parse("[" * 100 + "]" * 100) is not None
    for text, fault in (("[" * 102 + "]" * 102, "deep"), ("\x1e{}", "not valid")):
        with pytest.raises(ValueError, match=fault):
            strict_json.parse(text)


def panicking(path):
    """Make a tokenizer.json whose expression takes too many steps, on which the library panics."""
    split = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}
    change(path, pre_tokenizer=split, normalizer=None)


def test_a_panic_of_the_library_is_an_input_error(model):
    panicking(model / "tokenizer.json")
    with pytest.raises(InputError, match="tokenizer"):
        WordPiece.load(model).encode(["x" * 60])


def test_ids_far_beyond_the_entries_are_refused(model):
    spec = json.loads((model / "tokenizer.json").read_text())
    spec["model"]["vocab"]["words"] = 2**32 - 1
    (model / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        vocabulary.read(model)


JSON = [*b"null {} [] 1e999 -1 0 99999999999999999999 NaN true".split(), b'"', b"\\ud800", b"[" * 5000, b"\xff", b'"a"']


@pytest.mark.fuzz
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_file_of_a_model_is_read_or_named(model, tmp_path, name):
    whole = (model / name).read_bytes()

    def check(data):
        (model / name).write_bytes(data)
        try:
            bert_format.load(model)
            WordPiece.load(model).encode(["Words, words."])
            read_options(model / "tokenizer_config.json")
        except InputError as error:
            assert str(tmp_path) in str(error)  # noqa: PT017

    hammer(check, damaged([whole], JSON), examples=40)


def test_what_only_the_library_takes_for_json_is_refused(model):
    path = model / "tokenizer.json"
    path.write_text(path.read_text().replace('"version": "1.0",', '"version": "1.0", "1.0",'))
    with refused(InputError, "not valid JSON", path=str(path)):
        WordPiece.load(model)


@pytest.mark.fuzz
def test_a_config_with_any_values_is_read_or_named(model, tmp_path):
    whole = json.loads((model / "config.json").read_text())
    odd = st.sampled_from([10**9, 2**31, 2**63, 10**30, -1, 0, [], {}, [[]], {"a": 1}])
    values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | odd

    def check(fields):
        (model / "config.json").write_text(json.dumps(whole | fields))
        try:
            bert_format.load(model)
        except InputError as error:
            assert str(tmp_path) in str(error)  # noqa: PT017

    keys = st.sampled_from([*whole, "layer_types", "rope_parameters", "rope_scaling"])
    hammer(check, st.dictionaries(keys, values, max_size=3), examples=60)
