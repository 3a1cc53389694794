#!/usr/bin/env bash
# sentencepiece 0.2.3 (encode of a list with enable_sampling=True).
#
# Guess: with set_random_generator_seed a run can be repeated, and each call, so each epoch, draws other pieces for a
#   text, as it does for one text at a time.
# Seen: a list of texts has the same pieces in each call, whatever num_threads: each call starts new threads, and the
#   generator of a thread starts from the seed. Subword regularization has one sample of each batch for all epochs,
#   and two lists of the same texts are cut alike. Without a seed, and for one text a call, draws differ. The README
#   says of sampling that pieces differ "on each" call.
# What follows: encode text by text where the seed is set, or set another seed before each batch.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check sentencepiece==0.2.3
cd "$place"
cat > try.py <<'PYTHON'
import random
import sys
from pathlib import Path

import sentencepiece

WORDS = "token tokens tokenizer encoder encoders training trained trainer language languages model models".split()
random.seed(0)
Path("texts").write_text("".join(" ".join(random.choices(WORDS, k=10)) + "\n" for _ in range(500)))
sentencepiece.SentencePieceTrainer.train(input="texts", model_prefix="m", vocab_size=32, minloglevel=2)
processor = sentencepiece.SentencePieceProcessor(model_file="m.model")
TEXT = "tokenizer encoders trained models languages"
SAMPLE = {"enable_sampling": True, "alpha": 0.1, "nbest_size": -1, "out_type": str}


def epochs(threads: int) -> int:
    return len({str(processor.encode([TEXT] * 4, num_threads=threads, **SAMPLE)) for _ in range(10)})


unseeded = [epochs(threads) for threads in (1, 2, -1)]
sentencepiece.set_random_generator_seed(7)
seeded = [epochs(threads) for threads in (1, 2, -1)]
single = len({str(processor.encode(TEXT, **SAMPLE)) for _ in range(40)})
print(f"different batches in ten epochs, with 1, 2 and all threads: without a seed {unseeded}, with a seed {seeded}")
print(f"different cuts of the text in forty calls of one text, with the seed: {single}")
sys.exit(not (min(unseeded) > 1 and seeded == [1, 1, 1] and single > 1))
PYTHON
venv/bin/python try.py
