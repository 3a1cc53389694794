#!/usr/bin/env bash
# candle-transformers 0.11.1 (crate), Rust 1.95, safetensors 0.6.2 and numpy 2.3.5 (PyPI).
#
# Guess: XLMRobertaForMaskedLM gives the logits of the model: the product with the table and then the decoder's bias
#   (lm_head.bias), as transformers does; BertForMaskedLM of the same crate reads its bias.
# Seen: the bias is never read: files without it, and with one of 100 for one entry, have the same logits.
#   (DebertaV2NERModel makes its classifier without a bias as well, by its source.)
# What follows: words for a mask, losses and pseudo-perplexities are others than those of the model, most for frequent
#   words, whose bias is large. Add lm_head.bias to what it gives.
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
    "hidden_size": SIZE, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": WORDS,
    "max_position_embeddings": 12, "type_vocab_size": 1, "pad_token_id": 1, "hidden_act": "gelu",
    "layer_norm_eps": 1e-5, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0,
    "position_embedding_type": "absolute",
}
random = np.random.default_rng(0)
layer, embeddings = "roberta.encoder.layer.0.", "roberta.embeddings."
matrices = {
    embeddings + "word_embeddings": (WORDS, SIZE), embeddings + "position_embeddings": (12, SIZE),
    embeddings + "token_type_embeddings": (1, SIZE), layer + "attention.self.query": (SIZE, SIZE),
    layer + "attention.self.key": (SIZE, SIZE), layer + "attention.self.value": (SIZE, SIZE),
    layer + "attention.output.dense": (SIZE, SIZE), layer + "intermediate.dense": (32, SIZE),
    layer + "output.dense": (SIZE, 32), "lm_head.dense": (SIZE, SIZE),
}
norms = [embeddings + "LayerNorm", "lm_head.layer_norm"]
norms += [layer + "attention.output.LayerNorm", layer + "output.LayerNorm"]
tensors = {f"{name}.weight": random.normal(size=shape) for name, shape in matrices.items()}
tensors |= {f"{name}.bias": np.zeros(shape[0]) for name, shape in matrices.items() if "embeddings" not in name}
tensors |= {f"{name}.weight": np.ones(SIZE) for name in norms} | {f"{name}.bias": np.zeros(SIZE) for name in norms}
for number, bias in enumerate([np.zeros(WORDS), 100 * np.eye(WORDS)[7]]):
    file = {name: tensor.astype(np.float32) for name, tensor in (tensors | {"lm_head.bias": bias}).items()}
    save_file(file, f"model{number}.safetensors")
with open("config.json", "w", encoding="utf-8") as file:
    json.dump(config, file)
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
use candle_transformers::models::xlm_roberta::{Config, XLMRobertaForMaskedLM};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config: Config = serde_json::from_str(&std::fs::read_to_string("config.json")?)?;
    let entries = Tensor::new(&[[0u32, 5, 6, 7, 2]], &Device::Cpu)?;
    let mut found = Vec::new();
    for name in ["model0.safetensors", "model1.safetensors"] {
        let file = VarBuilder::from_buffered_safetensors(std::fs::read(name)?, DType::F32, &Device::Cpu)?;
        let model = XLMRobertaForMaskedLM::new(&config, file)?;
        let (mask, types) = (entries.ones_like()?, entries.zeros_like()?);
        let logits = model.forward(&entries, &mask, &types, None, None, None)?.get(0)?.to_vec2::<f32>()?;
        println!("{name}: logits of entry 7 {:?}", logits.iter().map(|row| row[7]).collect::<Vec<_>>());
        found.push(logits);
    }
    std::process::exit(if found[0] == found[1] { 0 } else { 1 })
}
RUST
cargo build --quiet 2> log || { cat log; exit 1; }
target/debug/try
