#!/usr/bin/env bash
# apache-beam 2.77.0 (RunInference), transformers 5.24.0, torch 2.13.0. (Installs 5 GB.)
#
# Guess: PytorchModelHandlerKeyedTensor gives one PredictionResult for each example, whatever a model of transformers is
#   told to return.
# Seen: with output_hidden_states=True or output_attentions=True examples are lost, without a word. The model returns
#   a tuple there, one tensor per layer; Beam takes it for one tensor per example, and ends with the shorter. Of five
#   examples a BERT of two layers gives three results; the n-th has as its "hidden_states" those of layer n of all five.
#   With attentions there is no result at all, as an encoder's "cross_attentions" are an empty tuple.
# What follows: count the results, and give the handler a model or an inference_fn that stacks the layers by example.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check apache-beam==2.77.0 transformers==5.24.0 torch==2.13.0
cd "$place"
cat > try.py <<'PYTHON'
import logging
from pathlib import Path

logging.disable(logging.CRITICAL)

import apache_beam as beam
import torch
from apache_beam.ml.inference.base import RunInference
from apache_beam.ml.inference.pytorch_inference import PytorchModelHandlerKeyedTensor
from transformers import BertConfig, BertModel

SIZES = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
torch.manual_seed(0)
torch.save(BertModel(BertConfig(**SIZES)).state_dict(), "model.pt")


def inferred(examples, **asked):
    """Shapes of what is inferred, a line for each result."""
    config = BertConfig(**SIZES, **asked, attn_implementation="eager")
    batch = {"min_batch_size": examples, "max_batch_size": examples}
    handler = PytorchModelHandlerKeyedTensor("model.pt", BertModel, {"config": config}, **batch)
    given = [{"input_ids": torch.tensor([5, 6, 7, 8 + number])} for number in range(examples)]
    path = Path("results")
    path.write_text("")

    def note(result):
        with path.open("a") as file:
            print({name: tuple(value.shape) for name, value in result.inference.items()}, file=file)

    with beam.Pipeline() as pipeline:
        pipeline | beam.Create(given) | RunInference(handler) | beam.Map(note)
    return path.read_text().split("\n")[:-1]


one = {"last_hidden_state": (4, 16), "pooler_output": (16,)}
seen = {
    "neither, five": inferred(5),
    "hidden states, five": inferred(5, output_hidden_states=True),
    "hidden states, one": inferred(1, output_hidden_states=True),
    "attentions, five": inferred(5, output_attentions=True),
}
for name, results in seen.items():
    print(f"{name}: {len(results)} results, each {set(results) or 'absent'}")
assert seen == {
    "neither, five": [str(one)] * 5,
    "hidden states, five": [str(one | {"hidden_states": (5, 4, 16)})] * 3,
    "hidden states, one": [str(one | {"hidden_states": (1, 4, 16)})],
    "attentions, five": [],
}
PYTHON
venv/bin/python -W ignore try.py
