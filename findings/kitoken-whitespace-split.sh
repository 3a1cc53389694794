#!/usr/bin/env bash
# kitoken 0.11.1, beside tokenizers 0.23.3.
#
# Guess: a tokenizer.json whose words are cut by WhitespaceSplit gives the ids of tokenizers, as with Whitespace,
#   BertPreTokenizer and Metaspace, or is refused.
# Seen: it opens, and spaces stay in the text. BPE gives an <unk> for each of them; WordPiece takes the space for the
#   start of the word, so that each word but the first is <unk>. The other three pre-tokenizers are right.
# What follows: text that was segmented before (Chinese, Vietnamese, Thai) is cut so; give "pre_tokenizer" the type
#   Split with the pattern {"Regex": "\\s+"} and the behavior Removed, which both read alike.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check kitoken==0.11.1 tokenizers==0.23.3
cd "$place"
venv/bin/python - <<'PYTHON'
import sys

from kitoken import Kitoken
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

TEXT = "the quick brown fox jumps"
COMMON = {"vocab_size": 120, "special_tokens": ["<unk>"], "show_progress": False}
cuts = {
    "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(),
    "Whitespace": pre_tokenizers.Whitespace(),
    "BertPreTokenizer": pre_tokenizers.BertPreTokenizer(),
    "Metaspace": pre_tokenizers.Metaspace(),
    "Split": pre_tokenizers.Split(Regex(r"\s+"), "removed"),
}
kinds = {"BPE": (models.BPE, trainers.BpeTrainer), "WordPiece": (models.WordPiece, trainers.WordPieceTrainer)}
same, unknown = {}, {}
for kind, (model, trainer) in kinds.items():
    for name, cut in cuts.items():
        tokenizer = Tokenizer(model(unk_token="<unk>"))
        tokenizer.pre_tokenizer = cut
        tokenizer.train_from_iterator([f"{TEXT} over the lazy dog"] * 20, trainer(**COMMON))
        tokenizer.save("tokenizer.json")
        want = tokenizer.encode(TEXT).ids
        seen = list(Kitoken.from_tokenizers_file("tokenizer.json").encode(TEXT, True))
        same[kind, name] = want == seen
        if name == "WhitespaceSplit":
            unknown[kind] = (want.count(0), seen.count(0))
            print(f"{kind}, {name}: {want}, kitoken {seen}")
print("as tokenizers:", [" ".join(case) for case, answer in same.items() if answer])
wrong = [name for (_, name), answer in same.items() if not answer]
sys.exit(wrong != ["WhitespaceSplit"] * 2 or unknown != {"BPE": (0, 4), "WordPiece": (0, 4)})
PYTHON
