#!/usr/bin/env bash
# candle-transformers 0.11.1 (crate; DistilBertModel beside BertModel; Rust 1.95). (Builds for some minutes.)
#
# Guess: attention_mask is that of the tokenizer, 1 for a word and 0 for padding, in each encoder of the crate, as in
#   transformers; a text has the same vectors alone and padded.
# Seen: so it is for BertModel. DistilBertModel hides what is 1: given the tokenizer's mask each word of a padded text
#   attends to the padding alone, and a text without padding, all ones, has NaN for vectors. The argument has the same
#   name, and no documentation (a change proposed in 2025 is open). With 1 for padding it is right.
# What follows: one program for both kinds embeds with DistilBERT what is not there. Turn the mask round for it
#   (mask.eq(0)), shaped (batch, 1, 1, length).
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
mkdir src
cat > Cargo.toml <<'TOML'
[package]
name = "masks"
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
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{VarBuilder, VarMap};
use candle_transformers::models::{bert::BertModel, distilbert::DistilBertModel};

const TEXT: [u32; 4] = [2, 7, 9, 3];
const PADDED: [u32; 7] = [2, 7, 9, 3, 0, 0, 0];
const BERT: &str = r#"{"vocab_size": 20, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "intermediate_size": 64, "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "max_position_embeddings": 16,
  "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12, "pad_token_id": 0,
  "position_embedding_type": "absolute", "use_cache": false, "classifier_dropout": null, "model_type": "bert"}"#;
const DISTILBERT: &str = r#"{"vocab_size": 20, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64,
  "activation": "gelu", "max_position_embeddings": 16, "initializer_range": 0.02, "pad_token_id": 0,
  "position_embedding_type": "absolute", "use_cache": false, "model_type": "distilbert"}"#;

fn distance(alone: &Tensor, padded: &Tensor) -> Result<f32> {
    let words = padded.narrow(1, 0, TEXT.len())?;
    (alone - words)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()
}

fn main() -> Result<()> {
    let device = Device::Cpu;
    let (text, padded) = (Tensor::new(&[TEXT], &device)?, Tensor::new(&[PADDED], &device)?);
    // What a tokenizer gives as attention_mask: 1 for words.
    let (full, part) = (text.ones_like()?, padded.ne(0u32)?.to_dtype(DType::U32)?);
    let weights = VarMap::new();
    let builder = VarBuilder::from_varmap(&weights, DType::F32, &device);
    let bert = BertModel::load(builder.pp("bert"), &serde_json::from_str(BERT).unwrap())?;
    let distilbert = DistilBertModel::load(builder.pp("other"), &serde_json::from_str(DISTILBERT).unwrap())?;

    let alone = bert.forward(&text, &text.zeros_like()?, Some(&full))?;
    let right = distance(&alone, &bert.forward(&padded, &padded.zeros_like()?, Some(&part))?)?;
    println!("BertModel, tokenizer's mask: padded differs from alone by {right:e}");

    let shaped = |mask: &Tensor| -> Result<Tensor> { mask.to_dtype(DType::U8)?.unsqueeze(1)?.unsqueeze(1) };
    let given = distilbert.forward(&text, &shaped(&full)?)?;
    let nan = given.flatten_all()?.to_vec1::<f32>()?.iter().all(|one| one.is_nan());
    let turned = distilbert.forward(&text, &shaped(&full.eq(0u32)?)?)?;
    let wrong = distance(&turned, &distilbert.forward(&padded, &shaped(&part)?)?)?;
    let well = distance(&turned, &distilbert.forward(&padded, &shaped(&part.eq(0u32)?)?)?)?;
    println!("DistilBertModel, tokenizer's mask: a text alone is all NaN: {nan}; padded it differs by {wrong}");
    println!("DistilBertModel, mask turned round: padded differs from alone by {well:e}");
    std::process::exit(i32::from(!(right < 1e-4 && nan && wrong > 0.01 && well < 1e-4)));
}
RUST
cargo build --quiet 2> log || { cat log; exit 1; }
target/debug/masks
