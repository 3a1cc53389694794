"""optimum opens the folder by its defaults; it wants an earlier transformers, which reads the weights too."""

import pytest

from tests.consumers.conftest import CLASSES, TEXTS, python_with

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(1800), pytest.mark.tool("optimum-onnx", "0.1.0")]
SCRIPT = """
import json, sys
import optimum.onnxruntime, torch, transformers
from transformers import AutoTokenizer
given = json.loads(sys.argv[1])
inputs = AutoTokenizer.from_pretrained(given["folder"])(given["texts"], padding=True, return_tensors="pt")
real = inputs["attention_mask"].bool()
apart = []
for name in given["classes"]:
    exported = getattr(optimum.onnxruntime, f"ORTModel{name}").from_pretrained(given["folder"])
    own = "AutoModel" + name.replace("ForFeatureExtraction", "")
    theirs = getattr(transformers, own).from_pretrained(given["folder"])
    with torch.no_grad():
        found, expected = exported(**inputs)[0], theirs.eval()(**inputs)[0]
    per_token = found.shape[:2] == real.shape
    apart.append(float((found - expected)[real].abs().max() if per_token else (found - expected).abs().max()))
print(json.dumps(apart))
"""


@pytest.mark.parametrize("kind", CLASSES)
def test_a_folder_opens_with_the_outputs_of_its_weights(kind, folders, record_property):
    run = python_with("optimum", "optimum-onnx[onnxruntime]==0.1.0", "transformers<4.58")
    given = {"folder": str(folders[kind]), "texts": TEXTS, "classes": CLASSES[kind]}
    assert max(run(SCRIPT, given)) < 1e-4
    record_property("works", f"{kind.replace('modern', 'ModernBERT')}")
    record_property("differs", "wants transformers < 4.58")
