"""CTranslate2 converts a BERT and gives its hidden states."""

from pathlib import Path

import pytest

from tests.consumers.conftest import TEXTS, python_with

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(1800)]
SCRIPT = """
import json, sys, tempfile
import ctranslate2, numpy, torch
from ctranslate2.converters.transformers import TransformersConverter
from transformers import AutoModel, AutoTokenizer
given = json.loads(sys.argv[1])
made = tempfile.mkdtemp()
TransformersConverter(given["folder"]).convert(made, force=True)
ids = [AutoTokenizer.from_pretrained(given["folder"])(text)["input_ids"] for text in given["texts"]]
found = numpy.array(ctranslate2.Encoder(made).forward_batch(ids).last_hidden_state)
model = AutoModel.from_pretrained(given["folder"]).eval()
apart = 0.0
for row, one in enumerate(ids):
    expected = model(torch.tensor([one])).last_hidden_state[0].detach().numpy()
    apart = max(apart, float(abs(found[row, : len(one)] - expected).max()))
print(json.dumps(apart))
"""


@pytest.mark.parametrize("kind", ["fill-mask", "feature-extraction"])
def test_hidden_states_are_those_of_the_weights(kind: str, folders: dict[str, Path]) -> None:
    run = python_with("ctranslate2", "ctranslate2==4.8.5")
    assert run(SCRIPT, {"folder": str(folders[kind]), "texts": TEXTS}) < 1e-5
