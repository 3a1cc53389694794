#!/usr/bin/env bash
# rust_tokenizers 8.1.1 (crate, which rust-bert reads by), Rust 1.95, beside sentencepiece 0.2.1 (PyPI).
#
# Guess: XLMRobertaTokenizer opens a sentencepiece.bpe.model and gives the entries of SentencePiece, whose models ask
#   for blanks to be made one (remove_extra_whitespaces).
# Seen: each further blank is an entry "▁": two blanks after a full stop, and blanks at a line's end, which
#   SentencePiece drops. A soft hyphen is dropped, which it keeps as <unk>. Other texts, also ligatures and "…", are
#   right.
# What follows: texts with double blanks, as typists and PDFs have them, have other vectors; make blanks one before.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check sentencepiece==0.2.1
mkdir src
cat > Cargo.toml <<'TOML'
[package]
name = "try"
version = "0.1.0"
edition = "2021"

[dependencies]
rust_tokenizers = "=8.1.1"

[profile.dev]
debug = false
TOML
cat > src/main.rs <<'RUST'
use rust_tokenizers::tokenizer::{Tokenizer, TruncationStrategy, XLMRobertaTokenizer};

fn main() {
    let tokenizer = XLMRobertaTokenizer::from_file("plain.model", false).unwrap();
    for text in std::fs::read_to_string("texts.txt").unwrap().lines() {
        let made = tokenizer.encode(text, None, 512, &TruncationStrategy::LongestFirst, 0);
        println!("{:?}", made.token_ids);
    }
}
RUST
cargo build --quiet 2> log || { cat log; exit 1; }
cat > try.py <<'PYTHON'
import json
import subprocess
import sys
from pathlib import Path

import sentencepiece

LINE = "The quick brown fox jumps over the lazy dog. Two cats ran home at 10 o'clock! Hello, World (and others)."
SAME = ["The quick brown fox.", "ﬁx the dog…", "the\u00a0dog", "Ж the", "the dog. Two cats"]
OTHER = ["the dog.  Two cats", "the dog ", "the do\u00adg"]
Path("train.txt").write_text(f"{LINE}\n" * 50, encoding="utf-8")
Path("texts.txt").write_text("\n".join([*SAME, *OTHER]) + "\n", encoding="utf-8")
sentencepiece.SentencePieceTrainer.train(
    input="train.txt", model_prefix="plain", vocab_size=90, hard_vocab_limit=False, minloglevel=2
)
model = sentencepiece.SentencePieceProcessor(model_file="plain.model")
lines = subprocess.run(["target/debug/try"], stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
differ = []
for text, line in zip([*SAME, *OTHER], lines, strict=True):
    # XLM-R's ids are those of the model and one, its <unk> is 3; "<s>" and "</s>" stand around them.
    wanted = [3 if n == model.unk_id() else n + 1 for n in model.encode(text)]
    found = json.loads(line)[1:-1]
    if wanted != found:
        differ.append(text)
        pieces = [" ".join("<unk>" if n == 3 else model.id_to_piece(n - 1) for n in ids) for ids in (wanted, found)]
        print(f"{text!r} sentencepiece {pieces[0]} | rust_tokenizers {pieces[1]}")
sys.exit(differ != OTHER)
PYTHON
env/bin/python try.py
