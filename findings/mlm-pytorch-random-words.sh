#!/usr/bin/env bash
# mlm-pytorch 0.1.0, torch 2.13.0. (Installs 5 GB.)
#
# Guess: random_token_prob=0.1 with mask_prob=0.15 is BERT's rule: of the 15 % of words that are asked for, a tenth
#   is replaced by random words; [CLS], [SEP] and padding, named in mask_ignore_token_ids and pad_token_id, stay.
# Seen: a tenth of all entries of the batch is replaced, asked for or not: a tenth of the words that have no loss are
#   others, and a tenth of [CLS], of [SEP] and of the padding are words. A random entry may be [MASK], where no loss
#   is. With random_token_prob=0, as unless told, nothing but what is asked for changes.
# What follows: with the option a text has more wrong words than BERT's, and an encoder that pools [CLS] does not find
#   it in one text of ten. Leave it 0.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    mlm-pytorch==0.1.0 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys
from unittest import mock

import torch
from mlm_pytorch import MLM

PAD, CLS, MASK, SEP, VOCABULARY = 0, 1, 2, 3, 1000
torch.manual_seed(0)
texts = torch.randint(5, VOCABULARY, (1000, 128))
texts[:, 0], texts[:, 100], texts[:, 101:] = CLS, SEP, PAD


class Encoder(torch.nn.Module):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.ids = ids
        return torch.zeros(*ids.shape, VOCABULARY)


def shares(random_token_prob: float) -> dict[str, float]:
    encoder = Encoder()
    task = MLM(
        encoder,
        mask_token_id=MASK,
        pad_token_id=PAD,
        mask_prob=0.15,
        replace_prob=0.9,
        num_tokens=VOCABULARY,
        random_token_prob=random_token_prob,
        mask_ignore_token_ids=[CLS, SEP],
    )
    with mock.patch("mlm_pytorch.mlm_pytorch.F.cross_entropy") as loss:
        task(texts)
    asked, changed = loss.call_args.args[1] != PAD, encoder.ids != texts
    places = {"words": (texts > 4) & ~asked, "[CLS]": texts == CLS, "[SEP]": texts == SEP, "padding": texts == PAD}
    return {name: round(float((changed & where).sum() / where.sum()), 2) for name, where in places.items()}


seen = {prob: shares(prob) for prob in (0.0, 0.1)}
for prob, found in seen.items():
    print(f"random_token_prob={prob}: share replaced of what has no loss {found}")
sys.exit(any(seen[0.0].values()) or not all(0.07 < share < 0.13 for share in seen[0.1].values()))
PYTHON
venv/bin/python try.py
