#!/usr/bin/env bash
# transformers 5.24.0 (ConvBertModel, MobileBertModel), torch 2.13.0. (Installs 5 GB.)
#
# Guess: attention_mask keeps padding out of the vectors of a text, as its docstring says ("0 for tokens that are
#   masked"), in every encoder that takes one.
# Seen: so it is with BERT, DeBERTa-v2, ELECTRA, MPNet and most others. ConvBERT's convolutions run over padding: in
#   each layer the last four tokens of a text read it, and all others read them by attention. MobileBERT makes its input
#   of each token and its two neighbours: the last token reads the padding's row of the embeddings, unless that is zero,
#   as it is in a new model. Nothing warns.
# What follows: vectors, tags and scores change with the longest text of the batch. Make batches of equal length; for
#   MobileBERT set the padding's row to zero.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    transformers==5.24.0 tokenizers==0.23.3 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import logging
import sys

import torch
import transformers

logging.disable(logging.CRITICAL)
LENGTH, PADDING = 20, 12
SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}
NARROW = {"embedding_size": 32}
MOBILE = {**NARROW, "true_hidden_size": 32, "intra_bottleneck_size": 32}
KINDS = {
    "Bert": {},
    "Electra": NARROW,
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "MPNet": {},
    "ConvBert": NARROW,
    "MobileBert": MOBILE,
}
torch.manual_seed(0)
ids = torch.randint(5, 60, (1, LENGTH))
mask = (torch.arange(LENGTH + PADDING)[None] < LENGTH).long()


def moved(kind: str, more: dict, keep_zero: bool) -> list[int]:
    """Return the places of the text whose vectors are others beside padding."""
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**SIZES, **more)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    if not keep_zero:
        # A new row is zero; a checkpoint has what its training has left there.
        torch.nn.init.normal_(model.get_input_embeddings().weight[0].data, std=0.2)
    with torch.no_grad():
        alone = model(input_ids=ids, attention_mask=mask[:, :LENGTH]).last_hidden_state
        padded = torch.cat([ids, torch.zeros(1, PADDING, dtype=torch.long)], dim=1)
        beside = model(input_ids=padded, attention_mask=mask).last_hidden_state[:, :LENGTH]
    change = (alone - beside).norm(dim=-1) / alone.norm(dim=-1)
    return change[0].gt(1e-4).nonzero().flatten().tolist()


found = {(kind, keep): moved(kind, more, keep) for kind, more in KINDS.items() for keep in (True, False)}
for (kind, keep), places in found.items():
    print(f"{kind}, padding's row {'zero' if keep else 'as trained'}: moved at {places}")
conv = all(set(range(LENGTH - 4, LENGTH)) <= set(found["ConvBert", keep]) for keep in (True, False))
mobile = not found["MobileBert", True] and LENGTH - 1 in found["MobileBert", False]
right = not any(places for (kind, _), places in found.items() if kind not in ("ConvBert", "MobileBert"))
sys.exit(not (conv and mobile and right))
PYTHON
venv/bin/python try.py
