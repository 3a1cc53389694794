"""Weights as people publish them: every form is read, and what is none is named."""

import json

import pytest
import torch
from safetensors.torch import save_file

from model.huggingface import bert_format
from pipeline.errors import InputError
from tests.model.tiny_bert import forms, our_logits, their_logits
from tests.support.refusals import refused


@pytest.mark.parametrize("form", ["with the decoder", "gamma and beta", "only decoder.bias"])
@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_published_forms_load_with_equal_logits(theirs, form, suffix):
    folder, model = theirs
    (folder / "model.safetensors").unlink()
    tensors = forms(model)[form]
    if suffix == "bin":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    config, state, notes, _ = bert_format.load(folder)
    assert notes == []
    masked, pairs = our_logits(config, state)
    found = their_logits(model)
    torch.testing.assert_close(masked, found.prediction_logits[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(pairs, found.seq_relationship_logits, atol=1e-5, rtol=0)


def test_pickled_parts_load_too(theirs, tmp_path):
    folder, model = theirs
    tensors = forms(model)["gamma and beta"]
    places = {name: f"part-{number % 2}.bin" for number, name in enumerate(tensors)}
    for part in ("part-0.bin", "part-1.bin"):
        torch.save({n: t for n, t in tensors.items() if places[n] == part}, tmp_path / part)
    index = {"metadata": {}, "weight_map": places}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    whole, parts = bert_format.load(folder)[1], bert_format.load(tmp_path)[1]
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_a_sharded_folder_that_lacks_a_part_says_which(tmp_path, theirs):
    theirs[1].save_pretrained(tmp_path / "parts", max_shard_size="4KB")
    lost = sorted((tmp_path / "parts").glob("model-*"))[1]
    lost.unlink()
    with pytest.raises(InputError, match=lost.name) as raised:
        bert_format.load(tmp_path / "parts")
    assert str(raised.value.path).endswith("index.json")


def test_weights_of_something_else_are_refused(theirs):
    save_file({"features.weight": torch.zeros(3)}, theirs[0] / "model.safetensors")
    with pytest.raises(InputError, match=r"word_embeddings\.weight"):
        bert_format.load(theirs[0])


def test_broken_files_are_named(theirs):
    folder, _ = theirs
    (folder / "model.safetensors").write_bytes(b"not tensors")
    with refused(InputError, path=str(folder / "model.safetensors")):
        bert_format.load(folder)
    (folder / "model.safetensors").unlink()
    with refused(InputError, path=str(folder)):
        bert_format.load(folder)
    (folder / "config.json").write_text("{")
    with refused(InputError, path=str(folder / "config.json")):
        bert_format.load(folder)


def test_a_pickle_that_would_run_code_is_refused(theirs):
    folder, _ = theirs
    (folder / "model.safetensors").unlink()
    torch.save({"bert.x": pytest.raises}, folder / "pytorch_model.bin")
    with refused(InputError, path=str(folder / "pytorch_model.bin")):
        bert_format.load(folder)


@pytest.mark.parametrize("value", [torch.int8, torch.float8_e4m3fn, float("nan")])
def test_quantised_and_diverged_weights_are_refused(theirs, value):
    folder, model = theirs
    tensors, name = forms(model)["gamma and beta"], "bert.encoder.layer.0.output.dense.weight"
    kind = isinstance(value, torch.dtype)
    tensors[name] = tensors[name].to(value) if kind else torch.full_like(tensors[name], value)
    save_file(tensors, folder / "model.safetensors")
    with refused(InputError, name, path=str(folder)):
        bert_format.load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_pointer_to_weights_is_named(name, theirs):
    folder, _ = theirs
    (folder / "model.safetensors").unlink()
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with refused(InputError, "is a Git LFS pointer, not the file itself", path=str(folder / name)):
        bert_format.load(folder)
