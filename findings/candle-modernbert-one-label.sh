#!/usr/bin/env bash
# candle-transformers 0.11.1 (crate), Rust 1.95, safetensors 0.6.2 and numpy 2.3.5 (PyPI).
#
# Guess: ModernBertForSequenceClassification gives the logits of the labels, as transformers' class of that name and as
#   the crate's own for XLM-R.
# Seen: it gives their softmax. A reranker has one label, so that each pair has the score 1.0, whatever its texts are; a
#   regression of STS as well. For several labels at once the scores are none of sigmoids.
# What follows: cross-encoders of ModernBERT cannot rank: take its head and classifier by hand.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check safetensors==0.6.2 numpy==2.3.5
env/bin/python - <<'PYTHON'
import json

import numpy as np
from safetensors.numpy import save_file

SIZE, WORDS = 16, 20
config = {
    "vocab_size": WORDS, "hidden_size": SIZE, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 64, "layer_norm_eps": 1e-5, "pad_token_id": 1, "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0, "local_attention": 128, "local_rope_theta": 10000.0, "classifier_pooling": "mean",
}
random = np.random.default_rng(0)
layer = "model.layers.0."
matrices = {
    "model.embeddings.tok_embeddings": (WORDS, SIZE), layer + "attn.Wqkv": (3 * SIZE, SIZE),
    layer + "attn.Wo": (SIZE, SIZE), layer + "mlp.Wi": (64, SIZE), layer + "mlp.Wo": (SIZE, 32),
    "head.dense": (SIZE, SIZE),
}
norms = ["model.embeddings.norm", layer + "mlp_norm", "model.final_norm", "head.norm"]
tensors = {f"{name}.weight": random.normal(size=shape) for name, shape in matrices.items()}
tensors |= {f"{name}.weight": np.ones(SIZE) for name in norms}
for labels in (1, 2):
    classifier = {"classifier.weight": random.normal(size=(labels, SIZE)), "classifier.bias": np.zeros(labels)}
    file = {name: tensor.astype(np.float32) for name, tensor in (tensors | classifier).items()}
    save_file(file, f"model{labels}.safetensors")
    names = {str(n): f"LABEL_{n}" for n in range(labels)}
    ids = {name: n for n, name in names.items()}
    with open(f"config{labels}.json", "w", encoding="utf-8") as file:
        json.dump(config | {"id2label": names, "label2id": ids}, file)
PYTHON
mkdir src
cat > Cargo.toml <<'TOML'
[package]
name = "try"
version = "0.1.0"
edition = "2021"

[dependencies]
candle-core = "=0.11.1"
candle-nn = "=0.11.1"
candle-transformers = "=0.11.1"
serde_json = "1"

[profile.dev]
debug = false
TOML
cat > src/main.rs <<'RUST'
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::modernbert::{Config, ModernBertForSequenceClassification};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut same = true;
    for labels in [1, 2] {
        let config: Config = serde_json::from_str(&std::fs::read_to_string(format!("config{labels}.json"))?)?;
        let file = std::fs::read(format!("model{labels}.safetensors"))?;
        let file = VarBuilder::from_buffered_safetensors(file, DType::F32, &Device::Cpu)?;
        let model = ModernBertForSequenceClassification::load(file, &config)?;
        let entries = Tensor::new(&[[0u32, 5, 6, 7, 2], [0, 9, 10, 11, 2], [0, 12, 5, 13, 2]], &Device::Cpu)?;
        let scores = model.forward(&entries, &entries.ones_like()?)?.to_vec2::<f32>()?;
        println!("{labels} labels: {scores:?}");
        same &= scores.iter().all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        same &= labels == 2 || scores.iter().all(|row| row[0] == 1.0);
    }
    std::process::exit(if same { 0 } else { 1 })
}
RUST
cargo build --quiet 2> log || { cat log; exit 1; }
target/debug/try
