#!/usr/bin/env bash
# conllu 6.0.0, beside udapi 0.5.2.
#
# Guess: a value of MISC has all that stands after the first "=", as in udapi; parse and serialize give the line back.
# Seen: it ends before the second "=", without a word, and is written back so. Glosses mark clitics by that sign
#   (Leipzig rules), and addresses have it: "Gloss=mother=3SG.POSS" becomes "mother", "?id=7" becomes "?id".
#   Comments ("# source = a=b") keep theirs.
# What follows: copy MISC from the line itself, or give parse field_parsers={"misc": …} that splits once.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check conllu==6.0.0 udapi==0.5.2
cd "$place"
venv/bin/python - <<'PYTHON'
import sys

import conllu
from udapi.core.document import Document

misc = "Gloss=mother=3SG.POSS|Ref=https://example.org/?id=7"
text = f"# source = https://example.org/?page=1\n1\tamarel\tama\tNOUN\t_\t_\t0\troot\t_\t{misc}\n\n"
sentence = conllu.parse(text)[0]
print("conllu:", sentence[0]["misc"])
print("written back:", sentence.serialize().split("\t")[-1].strip())
print("comment:", sentence.metadata["source"])
document = Document()
document.from_conllu_string(text)
others = str(document.bundles[0].trees[0].descendants[0].misc)
print("udapi:", others)


def split_once(line: list[str], column: int) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in line[column].split("|"))


whole = conllu.parse(text, field_parsers={"misc": split_once})[0].serialize()
print("split once:", whole.split("\t")[-1].strip())
seen = sentence[0]["misc"] == {"Gloss": "mother", "Ref": "https://example.org/?id"}
kept = sentence.metadata["source"] == "https://example.org/?page=1"
sys.exit(not (seen and kept and sentence.serialize() != text and others == misc and whole == text))
PYTHON
