"""Graphs of folders: the names of optimum and transformers.js, the numbers of transformers."""

import json

import numpy as np
import onnx
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from model.finetuning import saved_model
from model.finetuning.embeddings import Embedder
from model.finetuning.features import TruncationConfig, tokenize
from model.finetuning.heads import BertWithHead, HeadConfig
from model.huggingface import onnx_export
from pipeline.errors import InputError, UserError
from pipeline.tokenization.wordpiece import WordPiece
from tests.model.served_folders import SIZES, made, of_sentences, pretrained, tuned
from tests.support.refusals import refused

TEXTS = ["the uber the a b c", "über.", "the a"]
INPUTS = {"bert": ["input_ids", "attention_mask", "token_type_ids"], "modernbert": ["input_ids", "attention_mask"]}


def outputs(folder, file=onnx_export.MODEL, texts=TEXTS):
    """What onnxruntime answers to texts, as any user asks."""
    session = onnx_export.Session(folder / file)
    given = transformers.AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    return session.run(dict(given))


def scores(folder, size, vocab):
    torch.manual_seed(0)
    model = BertWithHead(size, HeadConfig("class", 1, scale=(-3e7, 4e6)))
    saved_model.save(folder, saved_model.SavedModel(model, []), size, vocab)


CASES = {
    "bert": ("bert", pretrained, ["logits", "seq_relationship_logits"], "BertForPreTraining"),
    "modernbert": ("modernbert", pretrained, ["logits"], "ModernBertForMaskedLM"),
    "class": ("bert", tuned("class"), ["logits"], "BertForSequenceClassification"),
    "modern class": ("modernbert", tuned("class"), ["logits"], "ModernBertForSequenceClassification"),
    "tag": ("bert", tuned("tag"), ["logits"], "BertForTokenClassification"),
    "answer": ("modernbert", tuned("answer"), ["start_logits", "end_logits"], "ModernBertForQuestionAnswering"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "make", "heads", "named"), CASES.values(), ids=CASES.keys())
def test_a_graph_has_what_its_folder_has(architecture, make, heads, named, tmp_path):
    folder = made(tmp_path, architecture, make)
    assert onnx_export.write(folder, [], None)["largest_onnx_difference"] < 1e-5
    graph = onnx.load(folder / "onnx" / "model.onnx")
    assert [one.name for one in graph.graph.input] == INPUTS[architecture]
    assert [one.name for one in graph.graph.output] == (["last_hidden_state"] if make is pretrained else []) + heads
    assert (graph.ir_version <= 10, graph.opset_import[0].version <= 20, len(graph.graph.value_info)) == (1, 1, 0)
    assert b"site-packages" not in (folder / "onnx" / "model.onnx").read_bytes(), "a path of this machine"
    theirs = getattr(transformers, named).from_pretrained(folder).eval()
    for texts in (TEXTS, TEXTS[1:2]):
        given = transformers.AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            expected = theirs(**given, output_hidden_states=True)
        real = given["attention_mask"].bool()
        for name, found in outputs(folder, texts=texts).items():
            other = {"last_hidden_state": expected.hidden_states[-1], "logits": expected.get("prediction_logits")}
            value = other[name] if other.get(name) is not None else expected[name]
            per_token = value.shape[:2] == real.shape and name != "seq_relationship_logits"
            apart = torch.from_numpy(found) - value
            assert (apart[real] if per_token else apart).abs().max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("architecture", SIZES)
def test_vectors_are_those_of_embed_in_fp32_and_nearly_in_int8(architecture, tmp_path):
    folder = made(tmp_path, architecture, of_sentences)
    wordpiece = WordPiece.load(folder)
    samples = tokenize(wordpiece, TEXTS, None, [0.0] * 3, TruncationConfig(32))
    texts = onnx_export.Texts("texts", list(zip(samples.ids, samples.second.tolist(), strict=True)))
    figures = onnx_export.write(folder, ["masked_head", "next_sentence", "pooler"], texts)
    assert {*outputs(folder)} == {"last_hidden_state", "sentence_embedding"}, "no head that is random"
    vectors = np.stack(Embedder(folder, [-1], "concat", "mean").vectors(samples))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(outputs(folder)["sentence_embedding"], vectors, atol=1e-5)
    alone = [outputs(folder, onnx_export.INT8, [text])["sentence_embedding"][0] for text in TEXTS]
    least = min(float(one @ other / np.linalg.norm(one)) for one, other in zip(alone, vectors, strict=True))
    assert figures["int8"]["least_cosine"] == pytest.approx(least, abs=1e-5)
    types = {one.op_type for one in onnx.load(folder / onnx_export.INT8).graph.node}
    assert {"MatMulInteger", "DynamicQuantizeLinear", "DequantizeLinear"} <= types, "embeddings too"


@pytest.mark.slow
def test_scores_of_any_scale_are_compared_by_their_deviation(tmp_path):
    folder = made(tmp_path, "bert", scores)
    assert onnx_export.write(folder, [], None)["largest_onnx_difference"] < 1e-5
    model = onnx_export.Served(folder, [])
    model.model.classifier.bias.data += 4e3
    apart = onnx_export.compare(folder / onnx_export.MODEL, model, onnx_export.sample(model, 2, 6, 0))
    assert apart == pytest.approx(4e3 / 3.4e7, rel=0.01)


@pytest.mark.slow
def test_int8_that_changes_the_model_is_refused_with_the_figure(tmp_path):
    folder = made(tmp_path, "bert", tuned("class"))
    weights = load_file(folder / "model.safetensors")
    weights["bert.embeddings.word_embeddings.weight"][40] *= 1e4  # next to which all others are nothing
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    texts = onnx_export.Texts("texts", [(np.array([2, 5 + number, 3]), 3) for number in range(4)])
    with refused(InputError, r"cosine to fp32 at least -?0\.\d+ on 4 texts"):
        onnx_export.write(folder, [], texts)


LAST = "lasttoken, which is not supported; .* convert takes it without onnx"


@pytest.mark.parametrize(("make", "said"), [(tuned("choice"), "BertForMultipleChoice"), (of_sentences, LAST)])
def test_what_has_no_standard_form_is_refused(tmp_path, make, said):
    folder = made(tmp_path, "bert", make)
    for path in folder.glob("*_Pooling/config.json"):
        path.write_text(json.dumps({"pooling_mode": "lasttoken"}))
    with refused(UserError, said):
        onnx_export.write(folder, [], None)
