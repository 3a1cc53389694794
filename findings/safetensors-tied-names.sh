#!/usr/bin/env bash
# safetensors 0.8.0 (save_model) and transformers 5.24.0, torch 2.13.0: which name a shared tensor keeps. (Installs 5 GB.)
#
# Guess: a masked-language model written by safetensors.torch.save_model beside its config.json opens in transformers,
#   with its head or without, as the same encoder.
# Seen: of tied tensors the name that comes first in the alphabet is written. For BERT that is the embeddings' and all
#   is well; for RoBERTa, ModernBERT and DeBERTa-v2 it is the head's (`lm_head.decoder.weight`, `decoder.weight`,
#   `cls.predictions.decoder.weight`). AutoModelForMaskedLM ties them again; AutoModel takes no notice of the file's
#   metadata, which names the lost one, and gives random word embeddings, with a line MISSING in its report.
# What follows: save with save_pretrained, which keeps the embeddings; look for MISSING embeddings before fine-tuning.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check safetensors==0.8.0 transformers==5.24.0 torch==2.13.0
cat > "$work/try.py" <<'PY'
import sys

import torch
from safetensors.torch import load_file, save_model
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, utils

utils.logging.set_verbosity_error()
utils.logging.disable_progress_bar()
sizes = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
ids = torch.tensor([[5, 6, 7, 8]])
found = {}
for kind in ("bert", "roberta", "modernbert", "deberta-v2"):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **sizes, pad_token_id=0, max_position_embeddings=64)
    model = AutoModelForMaskedLM.from_config(config).eval()
    folder = f"{sys.argv[1]}/{kind}"
    config.save_pretrained(folder)
    save_model(model, f"{folder}/model.safetensors")
    with torch.no_grad():
        whole = AutoModelForMaskedLM.from_pretrained(folder).eval()(ids).logits - model(ids).logits
        body = AutoModel.from_pretrained(folder).eval()(ids)[0] - model.base_model(ids)[0]
    head = sorted(name for name in load_file(f"{folder}/model.safetensors") if name.endswith("decoder.weight"))
    found[kind] = (float(whole.abs().max()) < 1e-5, float(body.abs().max()) < 1e-5)
    print(f"{kind}: same logits {found[kind][0]}, same encoder {found[kind][1]}; file: {head or 'the embeddings'}")
lost = dict.fromkeys(("roberta", "modernbert", "deberta-v2"), (True, False))
sys.exit(found != {"bert": (True, True), **lost})
PY
"$work/venv/bin/python" -W ignore "$work/try.py" "$work" 2> "$work/errors" || { cat "$work/errors"; exit 1; }
