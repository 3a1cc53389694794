#!/usr/bin/env bash
# spacy 3.8.18, spacy-curated-transformers 0.3.1: the loader of a SentencePiece model, given to XLM-R's encoder of pieces.
#
# Guess: SentencepieceLoader.v1 as the init of XlmrSentencepieceEncoder.v1 fills it, as it fills SentencepieceEncoder.v1.
# Seen: it sets the attribute of the chain, not of the encoder in it, which stays empty: initialisation succeeds, and the
# first text fails ("Model is not initialized"). The HF loader sets that of the reference "encoder", which works.
# What follows: give the loader to piece_encoder.get_ref("encoder").
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    spacy==3.8.18 spacy-curated-transformers==0.3.1 sentencepiece==0.2.1
cat > "$work/try.py" <<'PY'
import sys
from pathlib import Path

import sentencepiece
import spacy
from spacy_curated_transformers import tokenization

work = Path(sys.argv[1])
(work / "text.txt").write_text("\n".join(f"the sea and the sailor {number}" for number in range(500)))
sentencepiece.SentencePieceTrainer.train(
    input=str(work / "text.txt"), model_prefix=str(work / "m"), vocab_size=40, model_type="unigram", minloglevel=2
)
text = spacy.blank("en")("the sea")
load = tokenization.build_sentencepiece_encoder_loader_v1(path=work / "m.model")


def pieces(make, inner):
    whole = make()
    (whole.get_ref("encoder") if inner else whole).init = load
    whole.initialize([text])
    try:
        return whole.predict([text])[0].dataXd.tolist()
    except RuntimeError as error:
        return str(error)


plain, xlmr = tokenization.build_sentencepiece_encoder_v1, tokenization.build_xlmr_sentencepiece_encoder_v1
found = [pieces(plain, False), pieces(xlmr, False), pieces(xlmr, True)]
for name, one in zip(("SentencepieceEncoder", "XlmrSentencepieceEncoder", "its inner encoder"), found):
    print(f"{name}: {one}")
sys.exit(not (isinstance(found[0], list) and "not initialized" in str(found[1]) and isinstance(found[2], list)))
PY
"$work/venv/bin/python" "$work/try.py" "$work" 2> "$work/errors" || { cat "$work/errors"; exit 1; }
