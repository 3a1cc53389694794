#!/usr/bin/env bash
# chonkie 1.7.0 (TokenChunker), tokenizers 0.23.3.
#
# Guess: a chunk is a part of the text, text[chunk.start_index:chunk.end_index], whatever tokenizer counts its length.
# Seen: a chunk is what the tokenizer decodes. With an uncased BERT's it is lower case, has no accents, other blanks,
#   and lacks each word that is [UNK]; a word may begin as "##". Its indices are sums of such lengths, so that they
#   drift: with chonkie's own tokenizer "word", too, each chunk is one letter further off. SentenceChunker, with the
#   same tokenizers, is right.
# What follows: count tokens by the encoder that embeds, but cut with SentenceChunker, or by the offsets of
#   tokenizers.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check chonkie==1.7.0 tokenizers==0.23.3
cd "$place"
cat > try.py <<'PYTHON'
import sys

from chonkie import SentenceChunker, TokenChunker
from tokenizers import BertWordPieceTokenizer

TEXT = "Zoë met us at the Café. Her dog sat there. It sat for two days.  Then it met the Straße."
ENTRIES = "[PAD] [UNK] [CLS] [SEP] [MASK] . zoe met us at the cafe her dog sat there it for two day ##s then".split()
bert = BertWordPieceTokenizer({entry: n for n, entry in enumerate(ENTRIES)}, lowercase=True)._tokenizer


def compare(chunker) -> list[tuple[str, str]]:
    """Of each chunk its text and what its indices point at."""
    return [(chunk.text, TEXT[chunk.start_index : chunk.end_index]) for chunk in chunker(TEXT)]


seen = {
    "BERT": compare(TokenChunker(bert, chunk_size=6, chunk_overlap=0)),
    "word": compare(TokenChunker("word", chunk_size=4, chunk_overlap=0)),
    "sentences, BERT": compare(SentenceChunker(bert, chunk_size=12, chunk_overlap=0)),
    "sentences, word": compare(SentenceChunker("word", chunk_size=12, chunk_overlap=0)),
}
for name, chunks in seen.items():
    print(name, *chunks, sep="\n  ")
equal = {name: sum(one == other for one, other in chunks) for name, chunks in seen.items()}
whole = {name: "".join(one for one, _ in chunks) == TEXT for name, chunks in seen.items()}
lost = not any("Straße" in one or "Zoë" in one for one, _ in seen["BERT"])
sentences = [equal[name] == len(seen[name]) and whole[name] for name in list(seen)[2:]]
sys.exit(not (equal["BERT"] == 0 and equal["word"] == 1 and lost and all(sentences)))
PYTHON
venv/bin/python try.py
