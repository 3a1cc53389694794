#!/usr/bin/env bash
# mlx-embeddings 0.1.0 with mlx 0.32.4 (its build for CPUs), transformers 5.24.0.
#
# Guess: a ModernBERT folder that transformers 5 saved has the rotary bases of its config.json, as in transformers;
#   text_embeds is one vector for each text, the mean of its tokens, as the package's README shows and as of a BERT.
# Seen: transformers 5 writes the bases under rope_parameters. The package reads global_rope_theta and local_rope_theta,
#   as version 4 wrote them, and takes ModernBERT-base's numbers where these are absent, without a word. A model with
#   other bases (mmBERT's are both 160,000) has other vectors. And text_embeds of a folder with
#   ModernBertForMaskedLM, as pre-training leaves it, has a vector for each token; of one with ModernBertModel
#   last_hidden_state is already the mean.
# What follows: write the two old keys into config.json as well, and look at the shapes.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" mlx-embeddings==0.1.0 "mlx[cpu]==0.32.4" \
  transformers==5.24.0
cd "$place"
cat > try.py <<'PYTHON'
import json
import sys
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map
from mlx_embeddings.models.modernbert import Model, ModelArgs
from mlx_embeddings.utils import load_model
from transformers import ModernBertConfig

MMBERT = 160000.0
OLD = {"global_rope_theta": MMBERT, "local_rope_theta": MMBERT}
SIZES = {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}
CONFIG = ModernBertConfig(**SIZES, intermediate_size=96, pad_token_id=0, **OLD)
folder = Path("model")
folder.mkdir()
mx.random.seed(0)
ids, mask = mx.random.randint(5, 1000, (2, 200)), mx.ones((2, 200))


def read(architecture: str, **keys: float):
    CONFIG.architectures = [architecture]
    CONFIG.save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    if "random" in keys:
        model = Model(ModelArgs.from_dict(written))
        weights = tree_map(lambda one: one + 0.2 * mx.random.normal(one.shape), model.parameters())
        mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(weights)))
        return written
    (folder / "config.json").write_text(json.dumps(written | keys))
    return load_model(folder)(ids, attention_mask=mask)


written = read("ModernBertForMaskedLM", random=1)
print("bases in config.json:", written["rope_parameters"], "old keys:", [key for key in OLD if key in written])
saved, right = read("ModernBertForMaskedLM"), read("ModernBertForMaskedLM", **OLD)
one, other = saved.last_hidden_state, right.last_hidden_state
cosines = (one * other).sum(-1) / (mx.linalg.norm(one, axis=-1) * mx.linalg.norm(other, axis=-1))
print(f"least cosine of a token's vectors, as saved and with the old keys: {cosines.min().item():.3f}")
print(f"text_embeds of 2 texts of 200 tokens: {saved.text_embeds.shape}")
seen = not any(key in written for key in OLD) and cosines.min().item() < 0.99
sys.exit(not (seen and saved.text_embeds.shape == (2, 200, 64)))
PYTHON
HF_HUB_OFFLINE=1 venv/bin/python try.py
