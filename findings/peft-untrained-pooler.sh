#!/usr/bin/env bash
# peft 0.21.2 (LoRA, TaskType.SEQ_CLS), transformers 5.24.0, torch 2.13.0. (Installs 5 GB.)
#
# Guess: an adapter for classification has all that the checkpoint lacks, since the task type adds the new head to
#   modules_to_save; the base model and the saved adapter give the scores of the training again.
# Seen: so it is for RoBERTa, ELECTRA and DistilBERT, whose two new layers are both saved. Of BERT and DeBERTa-v2
#   "classifier" is saved and the pooler before it is not. Checkpoints of pre-training by masks alone have none, so
#   that each load draws another: a classifier that was right on all rows is right on any share, down to none. Nothing
#   is said but a line MISSING, as for the classifier, which is in the adapter.
# What follows: LoraConfig(modules_to_save=["classifier", "pooler"]), which is right, for such a base.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" peft==0.21.2 transformers==5.24.0 \
    torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import torch
import transformers
from peft import LoraConfig, PeftModel, TaskType, get_peft_model

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
DISTIL = {"vocab_size": 50, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
seeded = torch.Generator().manual_seed(0)
ids = torch.randint(5, 50, (64, 12), generator=seeded)
labels = torch.arange(64) % 2
ids[:, 0] = 3
ids[labels == 1, 1] = 4  # the class is plain to see


def right(model: torch.nn.Module) -> float:
    with torch.no_grad():
        return float((model.eval()(input_ids=ids).logits.argmax(-1) == labels).float().mean())


def compare(name: str, targets: list[str], **options: list[str]) -> list[float]:
    """Shares of rows that are right: after the training, and of three loads of base and adapter."""
    sizes = DISTIL if name == "DistilBert" else SIZES
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**sizes)
    getattr(transformers, f"{name}ForMaskedLM")(config).save_pretrained(name)
    build = getattr(transformers, f"{name}ForSequenceClassification").from_pretrained
    lora = LoraConfig(task_type=TaskType.SEQ_CLS, target_modules=targets, r=8, **options)
    model = get_peft_model(build(name), lora)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(120):
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    shares = [right(model)]
    model.save_pretrained(f"{name}-adapter")
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        shares.append(right(PeftModel.from_pretrained(build(name), f"{name}-adapter")))
    return shares


models = {
    "Bert": (["query", "value"], {}),
    "DebertaV2": (["query_proj", "value_proj"], {}),
    "Roberta": (["query", "value"], {}),
    "Electra": (["query", "value"], {}),
    "DistilBert": (["q_lin", "v_lin"], {}),
    "Bert, pooler saved": (["query", "value"], {"modules_to_save": ["classifier", "pooler"]}),
}
results = {name: compare(name.split(",")[0], *given[:1], **given[1]) for name, given in models.items()}
for name, shares in results.items():
    print(f"{name}: after training {shares[0]:.2f}; loaded {', '.join(f'{share:.2f}' for share in shares[1:])}")
lost = [name for name, shares in results.items() if shares[0] > 0.95 and min(shares) < 0.8]
kept = [name for name, shares in results.items() if shares[0] > 0.95 and len(set(shares)) == 1]
sys.exit(not (lost == ["Bert", "DebertaV2"] and len(kept) == 4))
PYTHON
venv/bin/python try.py 2> log || { tail -5 log; exit 1; }
