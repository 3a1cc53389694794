#!/usr/bin/env bash
# bpe-continue 0.1.0 (continue_training), tokenizers 0.23.3.
#
# Guess: as its README guarantees, each old token keeps its id and each old merge its rank, and a text is cut as before,
#   or coarser where new merges fit; a model that it cannot follow is refused, as WordPiece is.
# Seen: so it is for byte-level BPE, Metaspace and bytes as fallback. A model whose words end in `</w>` (HerBERT's,
#   XLM's and CLIP's kind) comes back without end_of_word_suffix: the old ids are there, but no word's last piece is
#   found any more. "cat</w>" becomes "c", "a", "t"; each text is cut finer than before, new words too. Nothing is said.
#   With continuing_subword_prefix training raises "Token `##a##t` out of vocabulary".
# What follows: the rows of embeddings that were kept are hardly used. Look at the tokens of old texts, not at the ids.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check bpe-continue==0.1.0 tokenizers==0.23.3
cd "$place"
cat > try.py <<'PYTHON'
import json
import random
import sys

from bpe_continue import continue_training
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

OLD = "the cat sat on mat old river lower lowest newer walking walked".split()
NEW = "covid vaccine protein kinase riverbank antibody".split()
random.seed(0)
old_texts = [" ".join(random.choices(OLD, k=8)) for _ in range(300)]
new_texts = [" ".join(random.choices(OLD + NEW, k=8)) for _ in range(300)]
alphabet = sorted(set("".join(OLD + NEW)))


def trained(pre_tokenizer, **marks: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **marks))
    tokenizer.pre_tokenizer = pre_tokenizer
    options = {"special_tokens": ["<unk>"], "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator(old_texts, trainers.BpeTrainer(vocab_size=120, **options, **marks))
    return tokenizer


def lengths(base: Tokenizer) -> tuple[bool, int, int]:
    """Return whether old ids are kept, and the number of tokens of the old texts before and after."""
    longer = continue_training(base, texts=new_texts, vocab_size=base.get_vocab_size() + 60, show_progress=False)
    kept = all(longer.token_to_id(token) == number for token, number in base.get_vocab().items())
    print("  suffix of the model after:", json.loads(longer.to_str())["model"]["end_of_word_suffix"])
    print("  before:", base.encode("the lowest cat").tokens, "after:", longer.encode("the lowest cat").tokens)
    return kept, *(sum(len(text.ids) for text in one.encode_batch(old_texts)) for one in (base, longer))


found = {}
for name, base in {
    "Metaspace": trained(pre_tokenizers.Metaspace()),
    "</w>": trained(pre_tokenizers.Whitespace(), end_of_word_suffix="</w>"),
}.items():
    print(name)
    found[name] = lengths(base)
print("ids kept, tokens before, tokens after:", found)
try:
    lengths(trained(pre_tokenizers.Whitespace(), continuing_subword_prefix="##"))
    error = ""
except Exception as problem:
    error = str(problem)
print("with ##:", error)
plain, marked = found["Metaspace"], found["</w>"]
right = plain[0] and plain[2] <= plain[1]
sys.exit(not (right and marked[0] and marked[2] > 2 * marked[1] and "out of vocabulary" in error))
PYTHON
venv/bin/python try.py
