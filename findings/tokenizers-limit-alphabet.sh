#!/usr/bin/env bash
# tokenizers 0.23.3: training a vocabulary with a limited alphabet.
#
# Guess: a letter beyond `limit_alphabet` (1,000 in BertWordPieceTokenizer) ends a piece, so that each entry learnt
#   occurs in the text; and the letters kept are the same in each training.
# Seen: the letter is taken out of its word and its neighbours are joined. From words such as 가X나, X a rare syllable,
#   the entry 가나 is learnt, which the text has nowhere, while each of the words is [UNK]. Of letters that are equally
#   frequent at the limit others are kept in each training: same text, same process, another alphabet.
# What follows: Korean, Japanese and Chinese have more than 1,000 letters. Count them, keep all that are to be kept,
#   and drop words with others from the text to learn from.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check tokenizers==0.23.3
cat > "$work/try.py" <<'PY'
import sys

from tokenizers import BertWordPieceTokenizer

rare = [chr(code) for code in range(0xC800, 0xC800 + 2000)]
common = ["가방 나라 다리 마을 바다 사람"] * 50
lines = common + [f"가{letter}나 바{letter}다 마{letter}을" for letter in rare]
text = "\n".join(lines)
alphabets, invented = set(), []
for _ in range(5):
    tokenizer = BertWordPieceTokenizer(lowercase=False, strip_accents=False, clean_text=False)
    tokenizer.train_from_iterator(lines, vocab_size=3000, min_frequency=2, show_progress=False)
    entries = [entry.removeprefix("##") for entry in tokenizer.get_vocab() if not entry.startswith("[")]
    alphabets.add("".join(sorted({entry for entry in entries if len(entry) == 1})))
    invented.append(sorted(entry for entry in entries if entry not in text))
unknown = sum(tokenizer.encode(f"가{letter}나", add_special_tokens=False).tokens == ["[UNK]"] for letter in rare)
print("entries that are nowhere in the text:", invented[0])
print("alphabets of five trainings:", len(alphabets), "of", *{len(letters) for letters in alphabets}, "letters")
print("words such as 가X나 that are [UNK]:", unknown, "of", len(rare))
sys.exit(not (all("가나" in entries for entries in invented) and len(alphabets) > 1 and unknown >= 1000))
PY
"$work/venv/bin/python" "$work/try.py"
