"""A folder of ours opens as ModernBERT, and a folder of theirs here, with equal logits."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
import transformers
import yaml
from safetensors.torch import load_file, save_file, save_model
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer, BertConfig

from model.huggingface import bert_format, model_card
from model.training import initial_weights
from pipeline.errors import InputError
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build
from tests.model.tiny_bert import our_logits, their_logits
from tests.model.tiny_modernbert import CONFIG, our_state, their_model
from tests.support.refusals import refused


@pytest.fixture
def folder(tmp_path, vocab_folder):
    bert_format.save(tmp_path / "saved", CONFIG, our_state(), vocab_folder)
    return tmp_path / "saved"


@pytest.fixture
def theirs(tmp_path):
    """A folder as transformers itself writes it, and its model."""
    model = their_model()
    model.save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs", model


def test_a_folder_opens_with_equal_logits(folder):
    opened, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert type(opened) is transformers.ModernBertForMaskedLM
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    masked, _ = our_logits(CONFIG, our_state())
    torch.testing.assert_close(their_logits(opened).logits[0], masked, atol=1e-5, rtol=0)
    encoder = AutoModel.from_pretrained(folder)
    assert type(encoder) is transformers.ModernBertModel
    assert their_logits(encoder).last_hidden_state.shape == (1, 30, 16)
    classifier, info = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert set(info["missing_keys"]) == {"classifier.weight", "classifier.bias"}
    assert torch.equal(classifier.head.dense.weight, opened.head.dense.weight)


def test_an_architecture_without_names_there_is_one_line(tmp_path, vocab_folder, monkeypatch):
    monkeypatch.delitem(bert_format.NAMES, "modernbert")
    with refused(InputError, "modernbert has no Hugging Face format", key="train"):
        bert_format.save(tmp_path / "saved", CONFIG, our_state(), vocab_folder)


def test_the_tokenizer_gives_no_segments(folder):
    opened = AutoTokenizer.from_pretrained(folder)
    assert set(opened("a")) == {"input_ids", "attention_mask"}
    assert (opened.mask_token, opened.pad_token_id, opened.model_max_length) == ("[MASK]", 0, 64)


def test_other_readers_find_what_they_ask_for_and_the_card_names_it(folder):
    sizes = json.loads((folder / "config.json").read_text())
    assert sizes["layer_norm_eps"] == sizes["norm_eps"] == 1e-5
    assert sizes["initializer_cutoff_factor"] == transformers.ModernBertConfig().initializer_cutoff_factor
    assert json.loads((folder / "sentence_bert_config.json").read_text()) == {"max_seq_length": 64}
    card = (folder / "README.md").read_text()
    served = model_card.serving("fill-mask", "modernbert", {"largest_onnx_difference": 1e-6})
    assert ("onnxruntime" in served, "CTranslate2" in served, "onnxruntime" in card) == (True, False, False)
    assert "ModernBERT (5 x 16)" in card
    assert "next-sentence" not in card


def old_spelling(folder):
    """The config.json as versions of transformers before 5 wrote it."""
    path = folder / "config.json"
    said = json.loads(path.read_text())
    for key in ("layer_types", "rope_parameters"):
        said.pop(key, None)
    said |= {"global_attn_every_n_layers": 2, "global_rope_theta": 900.0, "local_rope_theta": 100.0}
    path.write_text(json.dumps(said))


@pytest.mark.parametrize("theirs", [BertConfig(), transformers.ModernBertConfig()], ids=["bert", "modernbert"])
def test_keys_that_a_config_lacks_have_the_defaults_of_transformers(tmp_path, theirs):
    names = bert_format.NAMES[theirs.model_type]
    required = ("layers", "hidden", "heads", "feed_forward", "vocab_size")
    said = {names.sizes[key]: getattr(theirs, names.sizes[key]) for key in required}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": theirs.model_type, **said}))
    config = initial_weights.size_of(tmp_path)
    found = {key: getattr(config, ours) for ours, key in names.sizes.items()}
    assert found == {key: getattr(theirs, key) for key in found}
    theirs.save_pretrained(tmp_path)  # every key
    assert initial_weights.size_of(tmp_path) == config


@pytest.mark.parametrize("old", [False, True])
def test_a_folder_of_theirs_is_read(theirs, old):
    folder, model = theirs
    if old:
        old_spelling(folder)
    source = initial_weights.read(folder)
    assert (source.notes, source.config) == ([], replace(CONFIG, name="theirs"))
    expected = their_logits(model).logits[0]
    found, _ = our_logits(source.config, source.state)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("form", ["bf16", "in parts", "pickled", "padded"])
def test_forms_in_which_models_are_published_are_read(tmp_path, vocab_folder, form):
    model = their_model()
    if form == "padded":  # to a multiple of 64, as for ModernBERT
        model.resize_token_embeddings(64)
    if form == "bf16":
        model.bfloat16()
    model.save_pretrained(tmp_path, max_shard_size="3KB" if form == "in parts" else "5GB")
    assert (tmp_path / "model.safetensors.index.json").exists() == (form == "in parts")
    if form == "pickled":
        (tmp_path / "model.safetensors").unlink()
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    shutil.copy(vocab_folder / "tokenizer.json", tmp_path)
    source = initial_weights.read(tmp_path)
    assert [note for note in source.notes if "padding" not in note] == []
    assert len(source.notes) == (form == "padded")
    found, _ = our_logits(source.config, source.state)
    opened = transformers.ModernBertForMaskedLM.from_pretrained(tmp_path, dtype=torch.float32)
    expected = their_logits(opened).logits[0, :, : CONFIG.vocab_size]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("said", "base"), [({"global_rope_theta": 900.0}, 900), ({}, 160_000)])
def test_a_local_base_that_is_null_is_the_global_one(theirs, said, base):
    folder, _ = theirs
    old_spelling(folder)
    path = folder / "config.json"
    content = json.loads(path.read_text()) | {"local_rope_theta": None}
    del content["global_rope_theta"]
    path.write_text(json.dumps(content | said))
    size = initial_weights.size_of(folder)
    assert (size.rotary_global, size.rotary_local) == (base, base)


def test_what_an_encoder_alone_lacks_is_drawn_and_noted(theirs):
    folder, model = theirs
    model.model.save_pretrained(folder / "bare")
    _, state, notes, _ = bert_format.load(folder / "bare")
    lost = ["masked_head.bias", "masked_head.dense.weight", "masked_head.norm.weight"]
    end = f"not in {folder / 'bare'}, {bert_format.INITIALISED}"
    assert sorted(notes) == [f"{name}: {end}" for name in lost]
    assert torch.equal(state["encoder.norm.weight"], model.model.final_norm.weight)


FULL, LOCAL = "full_attention", "sliding_attention"
OTHERWISE = {  # what a config.json says
    "norm_bias: true": "norm_bias is True",
    "hidden_activation: silu": "hidden_activation is silu",
    f"layer_types: [{FULL}, {FULL}, {FULL}, {LOCAL}, {LOCAL}]": "layer_types is",
    f"layer_types: [{', '.join([FULL, LOCAL] * 3)}]": "layer_types has 6",
    "rope_parameters: {full_attention: {rope_type: yarn}}": "rope_type is yarn",
    "rope_parameters: {full_attention: {type: linear, factor: 2}}": "is linear",
    "rope_scaling: {rope_type: yarn, factor: 4.0}": "rope_type is yarn",
    "{rope_parameters: null, rope_scaling: {type: linear, factor: 2}}": "is linear",
    "rope_parameters: default": "config.json",
    "layer_types: [full_attention, sliding_attention]": "layer_types has 2",
    "{layer_types: null, global_attn_every_n_layers: null}": "global_every is None",
    "vocab_size: '40'": "vocab_size is '40', must be int",
    "max_position_embeddings: 64.0": "max_position_embeddings is 64.0, must be int",
    "norm_eps: '1e-5'": "norm_eps is '1e-5', must be float",
    "num_hidden_layers: null": "num_hidden_layers is required",
    "classifier_pooling: max": "classifier_pooling",
    "intermediate_size: 25": "shape",
}


@pytest.mark.parametrize(("changes", "reason"), OTHERWISE.items())
def test_what_we_compute_otherwise_is_refused(theirs, changes, reason):
    path = theirs[0] / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | yaml.safe_load(changes)))
    with pytest.raises(InputError, match=reason):
        bert_format.load(theirs[0])


def test_tied_weights_may_have_the_decoders_name_alone(theirs):
    folder, model = theirs
    expected = bert_format.load(folder)[1]
    save_model(model, str(folder / "model.safetensors"))
    assert "model.embeddings.tok_embeddings.weight" not in load_file(folder / "model.safetensors")
    _, found, notes, _ = bert_format.load(folder)
    assert notes == []
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_decoder_of_its_own_is_refused(theirs):
    path = theirs[0] / "model.safetensors"
    tensors = load_file(path)
    tensors["decoder.weight"] = tensors["model.embeddings.tok_embeddings.weight"] + 1
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match="decoder"):
        bert_format.load(theirs[0])


def test_training_starts_from_it_only_as_what_it_is(theirs):
    own = WordPiece(build([*SPECIAL, *(f"w{number}" for number in range(CONFIG.vocab_size - 5))]))
    started = initial_weights.start(theirs[0], replace(CONFIG, positions=512), own)
    assert started.config.positions == 64
    for change in ({"architecture": "bert"}, {"local_window": 16}, {"layers": 4}):
        with pytest.raises(InputError, match=next(iter(change))):
            initial_weights.start(theirs[0], replace(CONFIG, **change), own)
