#!/usr/bin/env bash
# goose3 3.1.22 (cleaned_text), beside resiliparse 2.0.1.
#
# Guess: of a paragraph that is in the article's text each word is there, at most without what it is marked as.
# Seen: words within an element of a phrase are left out, unless the element is one of a few (a, b, em, i, span, strong,
#   small, sup, br). Of "wrote that <q>the bridge</q> in <time>1204</time> had the <dfn>toll</dfn>" "wrote that in had
#   the" is left. So go quotations, works (cite), code, terms, abbreviations, dates, indices (sub), formulas and
#   underlined words, 19 of the 27 elements of HTML tried here. No option keeps them, and nothing tells.
# What follows: a corpus made with it has sentences with holes. Turn such elements into <span> before.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check goose3==3.1.22 resiliparse==2.0.1
cd "$place"
cat > try.py <<'PYTHON'
import logging
import sys

from goose3 import Goose
from resiliparse.extract.html2text import extract_plain_text

logging.disable()
AROUND = (
    "The history of the town begins in the ninth century, when the monks built a small house on the hill above the "
    "river and the farmers of the valley gave them a part of what they had."
)
SENTENCE = (
    "In that year the abbot of the house wrote to the king that {} over the river had been lost in the flood of the "
    "spring, and that the town had no money to build them again."
)
TAGS = (
    "a abbr b bdi bdo cite code data del dfn em i ins kbd mark math q s samp small span strong sub sup time u var"
).split()


def page(tag: str) -> str:
    middle = SENTENCE.format(f"<{tag}>seven bridges</{tag}>")
    paragraphs = "".join(f"<p>{text}</p>" for text in (AROUND, middle, AROUND))
    return f"<html><head><title>Town</title></head><body><article><h1>Town</h1>{paragraphs}</article></body></html>"


def left(text: str) -> str:
    text = " ".join(text.split())
    if SENTENCE.format("seven bridges") in text:
        return "whole"
    return "hole" if SENTENCE.format("") in text.replace("that over", "that  over") else "other"


goose = Goose({"enable_image_fetching": False})
found: dict[str, list[str]] = {}
for tag in TAGS:
    found.setdefault(left(goose.extract(raw_html=page(tag)).cleaned_text), []).append(tag)
other = {left(extract_plain_text(page(tag), main_content=True)) for tag in TAGS if tag not in ("time", "math")}
print(f"goose3: {found}; resiliparse: {other}")
holes = set(found.get("hole", []))
sys.exit(not ({"abbr", "cite", "code", "dfn", "q", "sub", "time", "u"} <= holes and "em" in found["whole"]))
PYTHON
venv/bin/python try.py
