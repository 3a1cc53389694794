"""sentence-transformers makes the vectors of our graph, and the page's lines train it."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.consumers.conftest import TEXTS, outputs, python_with

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(1800), pytest.mark.tool("sentence-transformers", "6.2.0")]
PAGE = Path(__file__).parents[2] / "docs" / "continue.md"
ENCODE = """
import json, sys
from sentence_transformers import SentenceTransformer
given = json.loads(sys.argv[1])
print(json.dumps(SentenceTransformer(given["folder"]).encode(given["texts"]).tolist()))
"""
RANK = """
import json, sys
from sentence_transformers import CrossEncoder
given = json.loads(sys.argv[1])
print(json.dumps(CrossEncoder(given["folder"]).predict([given["texts"]], apply_softmax=given["softmax"]).tolist()))
"""


@pytest.fixture(scope="session")
def st():
    return python_with("sentence-transformers", "sentence-transformers==6.2.0")


@pytest.mark.parametrize("kind", ["feature-extraction", "XLM-R sentences"])
def test_vectors_are_those_of_the_graph(st, folders, kind, record_property):
    found = st(ENCODE, {"folder": str(folders[kind]), "texts": TEXTS})
    np.testing.assert_allclose(found, outputs(folders[kind], TEXTS)["sentence_embedding"], atol=1e-5)
    record_property("works", "vectors of sentence models, XLM-R's too")


def test_a_plain_folder_is_pooled_by_the_mean(st, folders, record_property):
    for kind in ("fill-mask", "modern fill-mask", "RoBERTa fill-mask"):
        found, made = st(ENCODE, {"folder": str(folders[kind]), "texts": TEXTS}), outputs(folders[kind], TEXTS)
        real = made["mask"][:, :, None]
        expected = (made["last_hidden_state"] * real).sum(1) / real.sum(1)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    record_property("differs", "a plain folder gives the mean of the tokens")


@pytest.mark.parametrize("kind", ["text-classification", "RoBERTa text-classification", "several labels", "scores"])
def test_a_classifier_of_pairs_is_a_cross_encoder(st, folders, kind, record_property):
    folder, softmax = folders[kind], kind.endswith("classification")
    (found,) = st(RANK, {"folder": str(folder), "texts": TEXTS, "softmax": softmax})
    logits = outputs(folder, TEXTS[:1], TEXTS[1:])["logits"][0]
    odds = np.exp(logits)
    expected = odds / odds.sum() if softmax else logits if kind == "scores" else odds / (1 + odds)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    record_property("works", "classifiers as CrossEncoder")


def test_the_lines_of_the_page_make_a_model(st, folders):
    (lines,) = re.findall(r"```python\n(from sentence_transformers.*?)```", PAGE.read_text(), re.DOTALL)
    script = (
        "import json, sys, warnings\nwarnings.simplefilter('error', FutureWarning)\n"
        "warnings.simplefilter('error', DeprecationWarning)\n"
        + lines.replace('"work/books/convert"', "json.loads(sys.argv[1])['folder']")
    )
    shape = "\nprint(json.dumps(list(model.encode(json.loads(sys.argv[1])['texts']).shape)))"
    assert st(script + shape, {"folder": str(folders["fill-mask"]), "texts": TEXTS}) == [2, 16]
