#!/usr/bin/env bash
# rten-text 0.27.0 (crate; Rust 1.95), beside tokenizers 0.23.3 (PyPI).
#
# Guess: a tokenizer.json of an encoder that Tokenizer::from_file opens gives the ids of tokenizers; what it cannot
#   follow is refused, as the pre-tokenizer Whitespace is.
# Seen: lower case and accents are right, the rest of BERT's rules is left out without a word. Chinese characters stay
#   in one word, so that each after the first is lost in [UNK]. An unknown word is not [UNK], but its known pieces and
#   then [UNK]. Zero-width spaces and soft hyphens stay. "[MASK]" in a text is three unknown words. The post-processor
#   is not read: each WordPiece gets [CLS] and [SEP], a byte-level BPE, as RoBERTa's and ModernBERT's, gets neither.
# What follows: plain words in Latin letters hide it. Compare ids, the first and last too, before a model is fed.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check tokenizers==0.23.3
mkdir src
cat > Cargo.toml <<'TOML'
[package]
name = "words"
version = "0.1.0"
edition = "2021"

[dependencies]
rten-text = "=0.27.0"
serde_json = "1"
TOML
cat > src/main.rs <<'RUST'
use std::env::args;

fn main() {
    let tokenizer = rten_text::Tokenizer::from_file(args().nth(1).unwrap()).unwrap();
    let ids: Vec<Vec<u32>> = args()
        .skip(2)
        .map(|text| tokenizer.encode(text.as_str(), None).unwrap().token_ids().iter().map(|&id| id as u32).collect())
        .collect();
    println!("{}", serde_json::to_string(&ids).unwrap());
}
RUST
cargo build --quiet 2> log || { cat log; exit 1; }
cat > try.py <<'PYTHON'
import json
import subprocess
import sys

from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer, processors

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s cafe 你 好 a ##b".split()
TEXTS = {"the": "same", "Cats": "same", "Café": "same"}
TEXTS |= {"你好": "你 [UNK]", "catx": "cat [UNK]", "a\u200bb": "a [UNK]", "a\u00adb": "a [UNK]", "[MASK]": "[UNK] " * 3}
seen = []


def ids(tokenizer, texts: list[str]) -> list[list[int]]:
    tokenizer.save("tokenizer.json")
    command = ["target/debug/words", "tokenizer.json", *texts]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


bert = BertWordPieceTokenizer({word: number for number, word in enumerate(WORDS)}, lowercase=True)
for (text, expected), got in zip(TEXTS.items(), ids(bert, list(TEXTS)), strict=True):
    right = bert.encode(text)
    words = " ".join(WORDS[number] for number in got[1:-1])
    print(f"{text!a}: tokenizers {right.tokens[1:-1]}, rten-text {words!r}")
    seen.append(got == right.ids if expected == "same" else words == expected.strip() and got != right.ids)
roberta = ByteLevelBPETokenizer()
roberta.train_from_iterator(["the cat"], vocab_size=300, special_tokens=["<s>", "</s>"])
roberta._tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
right, got = roberta.encode("the cat").ids, ids(roberta, ["the cat"])[0]
print(f"byte-level BPE with <s> 0 and </s> 1: tokenizers {right}, rten-text {got}")
seen.append(got == right[1:-1] and right[0] == 0 and right[-1] == 1)
sys.exit(not all(seen))
PYTHON
env/bin/python try.py
