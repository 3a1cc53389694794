#!/usr/bin/env bash
# transformers 5.24.0 (Trainer), accelerate 1.15.0, torch 2.13.0. (Installs 5 GB.)
#
# Guess: eight rows as one batch, or as four batches of two with gradient_accumulation_steps=4, give the same loss and
#   gradient, at the least nearly.
# Seen: for encoders loss and gradient are four times as large, for n steps n times. Trainer takes a model whose forward
#   has **kwargs, as all have in version 5, for one that divides the loss itself; BERT, RoBERTa, DeBERTa-v2, ELECTRA and
#   DistilBERT take the mean of the batch and drop the count. Of ModernBERT masked words are right, its classes and tags
#   are not. AdamW hides it where nothing is clipped; max_grad_norm, 1.0 unless told, cuts n times as early.
# What follows: set model.accepts_loss_kwargs = False, which is right, before a Trainer accumulates for an encoder.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    transformers==5.24.0 accelerate==1.15.0 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import contextlib
import os
import sys

import torch
import transformers

transformers.logging.set_verbosity_error()
SIZES = dict(vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
KINDS = {"bert": {}, "roberta": {}, "deberta-v2": {}, "electra": {}, "modernbert": {}}
KINDS["distilbert"] = {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 64}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
DROPOUTS = "hidden_dropout_prob attention_probs_dropout_prob dropout attention_dropout seq_classif_dropout".split()
torch.manual_seed(0)
IDS = torch.randint(5, 100, (8, 12))
ROWS = {
    "MaskedLM": torch.where(torch.arange(12) % 4 == 0, IDS, -100),
    "SequenceClassification": torch.tensor([0, 1] * 4),
    "TokenClassification": IDS % 2,
}


def trained(kind: str, task: str, accumulate: int, told: bool = False) -> tuple[float, float]:
    options = SIZES | KINDS[kind] if kind != "distilbert" else {"vocab_size": 100} | KINDS[kind]
    config = transformers.AutoConfig.for_model(kind, **options, **(SPECIAL if kind == "modernbert" else {}))
    for name in DROPOUTS:
        if hasattr(config, name):
            setattr(config, name, 0.0)
    torch.manual_seed(1)
    model = getattr(transformers, "AutoModelFor" + task).from_config(config)
    if told:
        model.accepts_loss_kwargs = False
    args = transformers.TrainingArguments(
        "out",
        per_device_train_batch_size=8 // accumulate,
        gradient_accumulation_steps=accumulate,
        max_steps=1,
        learning_rate=0.0,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    rows = [{"input_ids": ids, "labels": labels} for ids, labels in zip(IDS, ROWS[task], strict=True)]
    trainer = transformers.Trainer(model, args, train_dataset=rows)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        trainer.train()
    return trainer.state.log_history[0]["loss"], trainer.state.log_history[0]["grad_norm"]


expected = True
for kind in KINDS:
    for task in ROWS:
        whole, parts, told = trained(kind, task, 1), trained(kind, task, 4), trained(kind, task, 4, told=True)
        ratios = [round(part / one, 1) for part, one in zip(parts, whole, strict=True)]
        right = [round(part / one, 1) for part, one in zip(told, whole, strict=True)]
        print(f"{kind} {task}: loss and gradient of 4 times 2 rows to 8 rows {ratios}, told {right}", flush=True)
        wanted = 1.0 if (kind, task) == ("modernbert", "MaskedLM") else 4.0
        expected &= all(abs(ratio - wanted) < 0.3 for ratio in ratios) and all(abs(ratio - 1) < 0.1 for ratio in right)
sys.exit(not expected)
PYTHON
venv/bin/python try.py 2> log || { tail -20 log; exit 1; }
