#!/usr/bin/env bash
# pysbd 0.3.4; Python 3.11.
# Guess: with clean=False the segments of a text, put together, are the text.
# Seen: a sentence with ♭ (as in "B♭ major"), ♬, ♨, ∯ or ∮ is missing without a word; its neighbours are there. These
#   signs stand for full stops and other marks inside of pysbd and are turned into them, so that the sentence is not found
#   again in the text. ♯ and ♪ do no harm.
# What follows: put such signs aside before, or compare the length of what comes back with that of the text.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check pysbd==0.3.4
env/bin/python -W ignore - <<'PYTHON'
import sys

import pysbd

segment = pysbd.Segmenter(language="en", clean=False).segment
text = "A first one. The sonata is in {} major. It has three movements."
lost = set()
for sign in ("B♭", "F♯", "♬", "♪", "♨", "∯", "∮"):
    given = text.format(sign)
    found = segment(given)
    if "".join(found) != given:
        lost.add(sign)
        print(f"{given!r} -> {found}")
sys.exit(lost != {"B♭", "♬", "♨", "∯", "∮"})
PYTHON
