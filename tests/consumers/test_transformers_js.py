"""transformers.js in Node reads our graphs by their names, and answers as transformers does."""

import numpy as np
import pytest
from transformers import AutoTokenizer, pipeline

from model.huggingface import onnx_export
from tests.consumers.conftest import KINDS, TEXTS, node_with, outputs

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(1800), pytest.mark.tool("transformers.js", "4.3.2")]
PACKAGE = "@huggingface/transformers@4.3.2"
SCRIPT = """
import {pipeline, env} from "@huggingface/transformers";
import path from "node:path";
const {task, folder, dtype, texts, options} = JSON.parse(process.argv[1]);
env.allowRemoteModels = false;
env.localModelPath = path.dirname(folder);
const made = await pipeline(task, path.basename(folder), {dtype}), {model, tokenizer} = made;
tokenizer.return_token_type_ids ||= options.segments;
const [text, text_pair] = texts, pair = options.pair && text_pair;
const given = () => pair ? tokenizer(text, {text_pair}) : tokenizer(texts, {padding: true, truncation: true});
const answer = options.output ? (await model(given()))[options.output] : await made(texts, options);
console.log(JSON.stringify(answer.tolist ? answer.tolist() : answer));
"""
ALONE = """
import {InferenceSession, Tensor} from "onnxruntime-node";
const {graph, inputs} = JSON.parse(process.argv[1]);
const tensor = rows => new Tensor("int64", BigInt64Array.from(rows.flat(), BigInt), [rows.length, rows[0].length]);
const feeds = Object.fromEntries(Object.entries(inputs).map(([name, rows]) => [name, tensor(rows)]));
const made = await (await InferenceSession.create(graph)).run(feeds);
console.log(JSON.stringify(Object.entries(made).map(([name, one]) => [name, Array.from(one.data)])));
"""


@pytest.fixture(scope="session")
def node():
    return node_with("transformers-js", PACKAGE)


def asked(node, folder, task, dtype, texts, **options):
    given = {"task": task, "folder": str(folder), "dtype": dtype, "texts": texts, "options": options}
    return node(SCRIPT, given)


@pytest.mark.parametrize("kind", ["fill-mask", "modern fill-mask", "RoBERTa fill-mask", "XLM-R fill-mask"])
def test_masks_are_filled_with_the_same_words(node, folders, kind, record_property):
    texts = ["the [MASK] a b", "[MASK] uber"]
    asks = pipeline("fill-mask", str(folders[kind]))
    texts = [text.replace("[MASK]", asks.tokenizer.mask_token) for text in texts]
    theirs = asks(texts)
    for text, expected in zip(texts, theirs, strict=True):
        found = asked(node, folders[kind], "fill-mask", "fp32", [text])
        found = found[0] if isinstance(found[0], list) else found
        assert [one["token"] for one in found] == [one["token"] for one in expected]
        np.testing.assert_allclose([o["score"] for o in found], [o["score"] for o in expected], atol=1e-5)
    assert asked(node, folders[kind], "fill-mask", "q8", texts[:1]), "int8 loads"
    record_property("works", "fill-mask in fp32, of RoBERTa and XLM-R too; int8 loads")


@pytest.mark.parametrize("kind", ["fill-mask", "modern fill-mask", "feature-extraction", "XLM-R sentences"])
def test_features_are_hidden_states_and_not_logits(node, folders, kind, record_property):
    for text in TEXTS:
        (found,) = asked(node, folders[kind], "feature-extraction", "fp32", [text])
        (expected,) = pipeline("feature-extraction", str(folders[kind]))([text])
        np.testing.assert_allclose(found, expected[0], atol=1e-4)
    record_property("works", "feature-extraction")


def test_classes_and_tags_are_those_of_transformers(node, folders, record_property):
    for kind in ("text-classification", "token-classification", "RoBERTa text-classification", "several labels"):
        task = "text-classification" if kind == "several labels" else kind.removeprefix("RoBERTa ")
        for text in TEXTS:
            found = asked(node, folders[kind], task, "fp32", [text])
            (expected,) = pipeline(task, str(folders[kind]))([text])
            expected = expected if isinstance(expected, list) else [expected]
            found = found[0] if isinstance(found[0], list) else found
            labels = [one.get("label", one.get("entity")) for one in found]
            assert labels == [one.get("label", one.get("entity")) for one in expected]
            np.testing.assert_allclose([o["score"] for o in found], [o["score"] for o in expected], atol=1e-4)
    record_property("works", "classes, tags; scores by the model")


def test_a_score_is_the_models_and_not_the_pipelines(node, folders, record_property):
    found = asked(node, folders["scores"], "text-classification", "fp32", TEXTS, output="logits")
    np.testing.assert_allclose(found, outputs(folders["scores"], TEXTS)["logits"], atol=1e-4)
    assert asked(node, folders["scores"], "text-classification", "fp32", TEXTS)[0]["score"] == 1
    record_property("differs", "`pipeline` makes each score 1")


@pytest.mark.parametrize("kind", ["scores", "question-answering", "text-classification"])
def test_pairs_have_segments_where_the_tokenizer_is_told_to_make_them(node, folders, kind, record_property):
    output = "start_logits" if kind == "question-answering" else "logits"
    task, options = kind if "-" in kind else "text-classification", {"output": output, "pair": True}
    expected = outputs(folders[kind], TEXTS[:1], TEXTS[1:])[output]
    found = asked(node, folders[kind], task, "fp32", TEXTS, segments=True, **options)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    without = asked(node, folders[kind], task, "fp32", TEXTS, **options)
    assert np.allclose(without, expected, atol=1e-4) == (kind == "text-classification")  # ModernBERT has none
    record_property("differs", "pairs have one segment without `return_token_type_ids`")


def test_a_graph_gives_vectors_of_sentences(node, folders):
    for kind in ("feature-extraction", "XLM-R sentences"):
        found = asked(node, folders[kind], "feature-extraction", "fp32", TEXTS, output="sentence_embedding")
        np.testing.assert_allclose(found, outputs(folders[kind], TEXTS)["sentence_embedding"], atol=1e-5)


@pytest.mark.tool("onnxruntime-node", "1.30.0")
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_alone_has_the_outputs_of_python(node, folders, kind, record_property):
    inputs = AutoTokenizer.from_pretrained(folders[kind])(TEXTS, padding=True, return_tensors="pt")
    for name in (onnx_export.MODEL, onnx_export.INT8):
        given = {"graph": str(folders[kind] / name), "inputs": {key: each.tolist() for key, each in inputs.items()}}
        expected = onnx_export.Session(folders[kind] / name).run(dict(inputs))
        for (output, numbers), made in zip(node(ALONE, given), expected, strict=True):
            assert output == made
            np.testing.assert_allclose(numbers, expected[made].ravel(), atol=1e-5)
    record_property("works", "graphs in fp32 and int8")
