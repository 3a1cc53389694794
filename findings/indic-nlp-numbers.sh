#!/usr/bin/env bash
# indic-nlp-library 0.92 (IndicNormalizerFactory, which prepares Indic corpora and models).
#
# Guess: a normaliser makes one spelling of several. That a colon "follows a character in this script", where its
#   docstrings say it becomes a visarga (a letter's sign), means letters; numbers and addresses stay.
# Seen: digits are characters too, in all nine scripts: the time "१२:३०" is "१२ः३०", and so are verses ("गीता २:४७")
#   and ratios, while "12:30" stays. In Devanagari, Bengali and Gurmukhi each "|" becomes the full stop "।", also in
#   addresses, formulas and tables of Latin letters. Its options (remove_nuktas, nasals_mode) switch neither off.
# What follows: numbers of a corpus are other tokens than those of texts that are not normalised; put the colons between
#   digits back, or hide such parts before.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check indic-nlp-library==0.92
cd "$place"
cat > try.py <<'PYTHON'
import sys

from indicnlp.normalize.indic_normalize import IndicNormalizerFactory

DIGITS = "०১੨૩୪௫౬೭൮"
LANGUAGES = "hi bn pa gu or ta te kn ml".split()


def normalize(language: str, text: str) -> str:
    return IndicNormalizerFactory().get_normalizer(language).normalize(text)


times = {language: normalize(language, f"{digit}:{digit}") for language, digit in zip(LANGUAGES, DIGITS)}
bars = {language for language in LANGUAGES if normalize(language, "x|y") == "x।y"}
kept = {normalize(language, "12:30") for language in LANGUAGES}
text = normalize("hi", "बैठक १२:३० बजे, गीता २:४७, https://example.org/a|b")
print("a colon between digits of the script:", times)
print("in ASCII:", kept)
print("a bar is a full stop in:", sorted(bars))
print(text)
changed = all(":" not in time for time in times.values())
right = text == "बैठक १२ः३० बजे, गीता २ः४७, https://example.org/a।b"
sys.exit(not (changed and right and kept == {"12:30"} and bars == {"hi", "bn", "pa"}))
PYTHON
venv/bin/python try.py
