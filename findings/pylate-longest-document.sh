#!/usr/bin/env bash
# pylate 1.6.0 (rank.rerank, scores.colbert_scores), torch 2.11.0, transformers 5.3.0. (Installs 5 GB.)
#
# Guess: the score of a document for a query is theirs alone, whatever other documents are ranked beside it.
# Seen: documents are filled up with zeros to the longest, and a zero counts as a token of similarity 0. Where a token
#   of the query is unlike each of the document's, so that its greatest similarity is negative, it counts 0 in all
#   documents but the longest: the same document has another score when a longer one is added to the list, and the
#   longest, which has its true score, falls below worse ones. documents_mask does not help, as it multiplies by 0.
#   colbert_scores_pairwise of the same package, which takes each pair alone, gives the true scores.
# What follows: take colbert_scores_pairwise, or rank each document by itself.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    pylate==1.6.0 torch==2.11.0 transformers==5.3.0 sentence-transformers==5.3.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from pylate import rank, scores

LENGTHS = {"short": 4, "middle": 5, "long": 12}
torch.manual_seed(0)


def draw(tokens: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(tokens, 128), dim=-1)


query = draw(8)
documents = {name: draw(length) for name, length in LENGTHS.items()}
documents["long"] = torch.nn.functional.normalize(documents["long"] - 0.6 * query.mean(0), dim=-1)
documents["middle"] = torch.nn.functional.normalize(documents["middle"] - 1.2 * query.mean(0), dim=-1)


def rerank(names: list[str]) -> dict[str, float]:
    given = [documents[name] for name in names]
    ranked = rank.rerank(documents_ids=[names], queries_embeddings=[query], documents_embeddings=[given])[0]
    return {row["id"]: round(row["score"], 3) for row in ranked}


pairs = scores.colbert_scores_pairwise([query] * len(documents), list(documents.values())).tolist()
right = {name: round(score, 3) for name, score in zip(documents, pairs)}
alone = {name: rerank([name])[name] for name in documents}
together = rerank(list(documents))
print(f"pairwise {right}; alone {alone}; all three, best first {together}")
padded = torch.nn.utils.rnn.pad_sequence(list(documents.values()), batch_first=True)
mask = (padded != 0).any(-1)
masked = scores.colbert_scores(query[None], padded, documents_mask=mask)[0].tolist()
print("with documents_mask:", [round(score, 3) for score in masked])
wrong = alone["short"] < alone["long"] and together["short"] > together["long"] == right["long"]
same = [round(score, 3) for score in masked] == [together[name] for name in documents]
sys.exit(not (alone == right and wrong and same and right["middle"] < 0 < together["middle"]))
PYTHON
venv/bin/python try.py
