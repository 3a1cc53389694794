#!/usr/bin/env bash
# keras 3.15.1 (optimizers.Muon, MultiHeadAttention), torch 2.13.0 as the backend. (Installs 5 GB.)
#
# Guess: of an encoder, Muon orthogonalises the matrices of attention and of the feed-forward layers; biases, norms and
#   embeddings get AdamW, as its docstring says of "Any {0,1}-D variables".
# Seen: the number of axes decides, and Keras keeps attention's kernels with three, (width, heads, size), the biases of
#   query, key and value with two, (heads, size). So these biases are orthogonalised across heads, as if they were
#   matrices, and no kernel of attention is: all get AdamW. Feed-forward layers are right. Nothing is said.
# What follows: a run "with Muon" trains attention otherwise than Muon does. Give exclude_layers the pattern "bias", or
#   MultiHeadAttention(use_bias=False); look for variables without "velocity" in the optimizer.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" keras==3.15.1 torch==2.13.0 numpy==2.4.6
cd "$place"
export KERAS_BACKEND=torch KERAS_HOME="$place/home"
cat > try.py <<'PYTHON'
import sys

import keras
import numpy as np

VOCABULARY, WIDTH, HEADS = 50, 32, 4


def train(exclude: list[str]) -> tuple[list[str], dict[str, np.ndarray]]:
    """Take one step of a small encoder; return the paths that Muon has, and what each variable has changed by."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((8,))
    words = keras.layers.Embedding(VOCABULARY, WIDTH, name="embedding")(ids)
    attended = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name="attention")(words, words)
    hidden = keras.layers.LayerNormalization(name="norm")(words + attended)
    hidden = keras.layers.Dense(WIDTH, name="down")(keras.layers.Dense(64, "gelu", name="up")(hidden))
    model = keras.Model(ids, keras.layers.Dense(VOCABULARY, name="head")(hidden))
    optimizer = keras.optimizers.Muon(1.0, weight_decay=0.0, exclude_layers=["head", *exclude])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = {variable.path: variable.numpy() for variable in model.trainable_variables}
    rows = np.random.default_rng(0).integers(0, VOCABULARY, (16, 8))
    model.fit(rows, rows, batch_size=16, verbose=0)
    # AdamW keeps a velocity for each variable, Muon a momentum alone.
    kept = {variable.path.split("/")[-1] for variable in optimizer.variables}
    by_muon = [path for path in before if path.replace("/", "_") + "_velocity" not in kept]
    return by_muon, {variable.path: variable.numpy() - before[variable.path] for variable in model.trainable_variables}


by_muon, changes = train(exclude=[])
print("by Muon:", {path: changes[path].shape for path in by_muon})
kernels = [f"attention/{part}/kernel" for part in ("query", "key", "value", "attention_output")]
print("by AdamW:", {path: changes[path].shape for path in kernels})
sizes = np.linalg.svd(changes["attention/query/bias"], compute_uv=False)
print("directions of the query bias's step have the sizes", sizes.round(2))
others, _ = train(exclude=["bias"])
print("with the pattern 'bias':", others)
biases = {f"attention/{part}/bias" for part in ("query", "key", "value")}
seen = set(by_muon) == biases | {"up/kernel", "down/kernel"} and not set(kernels) & set(by_muon)
sys.exit(not (seen and sizes[-1] > 0.5 * sizes[0] and others == ["up/kernel", "down/kernel"]))
PYTHON
venv/bin/python try.py
