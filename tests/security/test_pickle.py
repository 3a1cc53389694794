"""Checkpoints are data: none of ours holds a pickle, and nobody's is run."""

import ast
from pathlib import Path

import pytest
import torch

from benchmarks.small import make_work
from model.config import ModelConfig
from model.encoders.architectures import build_model
from model.huggingface import bert_format
from model.huggingface.bert_format import read_file
from pipeline.errors import InputError

SIZE = ModelConfig(name="t", layers=1, hidden=8, heads=1, feed_forward=8, vocab_size=125)


CALLS = "torch.load pickle.load pickle.loads eval exec os.system yaml.load yaml.unsafe_load joblib.load np.load"
UNSAFE = CALLS.split()


class Harm:
    """What a pickle does when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_pickle_that_would_act_is_refused_and_does_nothing(tmp_path, name):
    torch.save({"bert.x": Harm(tmp_path / "harm")}, tmp_path / name)
    with pytest.raises(InputError, match=f"{name}: cannot be read"):
        read_file(tmp_path / name)
    assert not (tmp_path / "harm").exists()


def test_nothing_that_we_write_is_a_pickle(tmp_path):
    make_work(tmp_path)
    state = build_model(SIZE).state_dict()
    bert_format.save(tmp_path / "convert", SIZE, state, tmp_path / "vocab")
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 5
    for path in written:
        head = path.read_bytes()[:2]
        assert head not in (b"PK", b"\x80\x02", b"\x80\x04", b"\x80\x05"), path


def test_no_code_of_ours_loads_a_pickle_or_unpacks_an_archive(root):
    """`torch.load` only with `weights_only=True`; nothing of pickle's own, no `extractall`.

    Collectives of objects unpickle what other ranks send.
    """
    found = []
    for path in [*root.glob("pipeline/**/*.py"), *root.glob("model/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            safe = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if called == "torch.load" and safe.get("weights_only") == "True":
                continue
            unpack = (".extractall", ".unpack_archive", "gather_object", "_object_list")
            if called in UNSAFE or called.endswith(unpack):
                found.append(f"{path}:{node.lineno}: {called}")
    assert found == []
