#!/usr/bin/env bash
# xllamacpp 2026.10.11549 (PyPI's build of llama.cpp), gguf 0.19.0, beside tokenizers 0.23.3.
#
# Guess: a GGUF file of a cased BERT, whose vocabulary has capitals and accents, is cut as by BERT's cased tokenizer, or
#   refused.
# Seen: WordPiece is lower-cased and stripped of accents always; no key of GGUF says otherwise. Of a German cased
#   vocabulary "Straße" and "Köln" are never used: "Köln" is "koln" or [UNK], though it is an entry, and the vectors of
#   "Essen" (the city, the meal) and "essen" (to eat) are the same. Marks of Indic scripts go too, also for uncased
#   models: a vowel sign is lost, and its word [UNK].
# What follows: cased German, French and multilingual encoders (LaBSE) embed badly there without a word. Use
#   uncased or SentencePiece models, or an ONNX file with its own tokenizer.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check xllamacpp==2026.10.11549 gguf==0.19.0 \
  tokenizers==0.23.3 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import json
import sys
import urllib.request

import gguf
import numpy as np
import xllamacpp
from tokenizers import BertWordPieceTokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] Straße stra ##ße Köln essen Essen in डि ड".split()
TEXTS = {"Straße": "stra ##ße", "in Köln": "in [UNK]", "Essen": "essen", "essen": "essen", "डि": "ड"}
WIDTH, INNER, LENGTH = 32, 64, 32
rng = np.random.default_rng(0)

writer = gguf.GGUFWriter("cased.gguf", "bert")
writer.add_block_count(1)
writer.add_context_length(LENGTH)
writer.add_embedding_length(WIDTH)
writer.add_feed_forward_length(INNER)
writer.add_head_count(4)
writer.add_layer_norm_eps(1e-12)
writer.add_causal_attention(False)
writer.add_pooling_type(gguf.PoolingType.MEAN)
writer.add_tokenizer_model("bert")
writer.add_tokenizer_pre("default")
special = [word.startswith("[") for word in WORDS]
pieces = [word.removeprefix("##") if word.startswith("##") else "\u2581" + word for word in WORDS]
writer.add_token_list([word if role else piece for word, role, piece in zip(WORDS, special, pieces, strict=True)])
writer.add_token_types([gguf.TokenType.CONTROL if role else gguf.TokenType.NORMAL for role in special])
writer.add_token_type_count(2)
roles = (writer.add_pad_token_id, writer.add_unk_token_id, writer.add_bos_token_id, writer.add_sep_token_id)
for number, role in enumerate(roles):
    role(number)
shapes = {"token_embd": (len(WORDS), WIDTH), "position_embd": (LENGTH, WIDTH), "token_types": (2, WIDTH)}
shapes |= {f"blk.0.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
shapes |= {"blk.0.ffn_up": (INNER, WIDTH), "blk.0.ffn_down": (WIDTH, INNER)}
shapes |= {name: (WIDTH,) for name in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm")}
for name, shape in shapes.items():
    writer.add_tensor(f"{name}.weight", rng.normal(size=shape).astype(np.float32))
    if name.startswith("blk") or "norm" in name:
        writer.add_tensor(f"{name}.bias", np.zeros(shape[0], np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

parameters = xllamacpp.CommonParams()
parameters.model.path = "cased.gguf"
parameters.embedding = True
parameters.warmup = False
parameters.n_ctx = LENGTH
server = xllamacpp.Server(parameters)


def ask(what: str, **given: object):
    request = urllib.request.Request(f"{server.listening_address}/{what}", json.dumps(given).encode())
    request.add_header("Content-Type", "application/json")
    return json.loads(urllib.request.urlopen(request, timeout=60).read())


right = BertWordPieceTokenizer({word: number for number, word in enumerate(WORDS)}, lowercase=False)
seen = []
for text, expected in TEXTS.items():
    got = " ".join(WORDS[number] for number in ask("tokenize", content=text, add_special=False)["tokens"])
    print(f"{text}: cased BERT {right.encode(text, add_special_tokens=False).tokens}, llama.cpp {got}")
    seen.append(got == expected)
one, other = (np.array(ask("v1/embeddings", input=text)["data"][0]["embedding"]) for text in ("Essen", "essen"))
print("greatest difference of the vectors of Essen and essen:", np.abs(one - other).max())
sys.exit(not (all(seen) and np.allclose(one, other) and np.abs(one).max() > 0))
PYTHON
venv/bin/python try.py 2> log || { cat log; exit 1; }
