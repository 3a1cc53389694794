"""Programs that embed texts on a CPU make of our folders the vectors that our graph gives."""

import numpy as np
import pytest

from tests.consumers.conftest import TEXTS, outputs, python_with

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(1800)]
GRAPH = """
import json, sys
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
given = json.loads(sys.argv[1])
TextEmbedding.add_custom_model(
    "own/model", PoolingType.MEAN, False, ModelSource(hf="own/model"), given["width"], model_file="onnx/model.onnx"
)
model = TextEmbedding("own/model", specific_model_path=given["folder"])
print(json.dumps([vector.tolist() for vector in model.embed(given["texts"])]))
"""
TABLE = """
import json, sys
from model2vec.distill import distill
given = json.loads(sys.argv[1])
model = distill(given["folder"], pca_dims=None, sif_coefficient=None)
print(json.dumps(model.encode(given["texts"]).tolist()))
"""


def means(folder, texts):
    made = outputs(folder, texts)
    real = made["mask"][:, :, None]
    return (made["last_hidden_state"] * real).sum(1) / real.sum(1)


@pytest.mark.tool("fastembed", "0.9.1")
@pytest.mark.parametrize("kind", ["fill-mask", "modern fill-mask", "RoBERTa fill-mask", "XLM-R sentences"])
def test_fastembed_runs_the_graph_of_a_folder(kind, folders, record_property):
    given = {"folder": str(folders[kind]), "texts": TEXTS, "width": 16}
    found = python_with("fastembed", "fastembed==0.9.1")(GRAPH, given)
    np.testing.assert_allclose(found, means(folders[kind], TEXTS), atol=1e-5)
    record_property("works", "`onnx/model.onnx` as a custom model")


@pytest.mark.tool("model2vec", "0.10.0")
@pytest.mark.parametrize("kind", ["fill-mask", "modern fill-mask"])
def test_model2vec_makes_a_table_of_the_vectors_of_words(kind, folders, record_property):
    texts = ["the", "uber"]
    given = {"folder": str(folders[kind]), "texts": texts}
    found = np.array(python_with("model2vec", "model2vec[distill]==0.10.0")(TABLE, given))
    expected = means(folders[kind], texts)
    cosines = (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    np.testing.assert_allclose(cosines, 1, atol=1e-3)
    record_property("works", "distilled vectors of words, ModernBERT too")
