#!/usr/bin/env bash
# keras-hub 0.32.0 (BertBackbone, XLMRobertaBackbone), keras 3.15.1, transformers 5.24.0, torch 2.13.0. (Installs 7 GB.)
#
# Guess: from_preset of a transformers folder gives the folder's model: what config.json says is computed, or refused.
# Seen: neither "hidden_act" nor "layer_norm_eps" is read. A BERT is computed with the approximate GELU, which
#   transformers calls "gelu_new", whatever its config.json says; only with that name are its vectors right to seven
#   digits. With "gelu", as nearly all have it, the fourth digit differs; with "relu" or "silu" the vectors are others.
#   XLM-RoBERTa has the true GELU and its own epsilon, whatever is said. Nothing warns.
# What follows: compare the vectors of a text in both before a converted encoder is used.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    keras-hub==0.32.0 keras==3.15.1 transformers==5.24.0 tokenizers==0.23.3 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import os
import sys

os.environ |= {"KERAS_BACKEND": "torch", "TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1"}
import keras_hub
import numpy as np
import torch
import transformers as hf

SIZES = {
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 66,
    "initializer_range": 0.1,
}
KINDS = {
    "BERT": (hf.BertConfig, hf.BertModel, keras_hub.models.BertBackbone),
    "XLM-R": (hf.XLMRobertaConfig, hf.XLMRobertaModel, keras_hub.models.XLMRobertaBackbone),
}
ids = np.array([[2, *range(10, 40), 3]])
inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}


def compare(kind: str, **options: object) -> float:
    """Return by how much of their size the vectors of Keras are off."""
    config, model, backbone = KINDS[kind]
    torch.manual_seed(0)
    original = model(config(**SIZES, **options)).eval()
    folder = f"{kind}-{'-'.join(map(str, options.values()))}"
    original.save_pretrained(folder)
    keras = backbone.from_preset(folder)
    answer = keras({name: value for name, value in inputs.items() if name in keras.input})
    found = (answer["sequence_output"] if isinstance(answer, dict) else answer).detach().cpu().numpy()
    with torch.no_grad():
        wanted = original(torch.tensor(ids)).last_hidden_state.numpy()
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


CHOICES = [{"hidden_act": name} for name in ("gelu", "gelu_new", "relu", "silu")] + [{"layer_norm_eps": 1e-3}]
seen = {(kind, *choice.values()): compare(kind, **choice) for kind in KINDS for choice in CHOICES}
for key, off in seen.items():
    print(*key, f"off by {off:.1e}")
right = seen["BERT", "gelu_new"] < 2e-6
near = 3e-5 < seen["BERT", "gelu"] < 1e-2 and seen["BERT", 1e-3] > 5e-4
sys.exit(not (right and near and all(seen[kind, name] > 0.05 for kind in KINDS for name in ("relu", "silu"))))
PYTHON
venv/bin/python try.py 2>"$place/log" || { tail -5 "$place/log"; exit 1; }
