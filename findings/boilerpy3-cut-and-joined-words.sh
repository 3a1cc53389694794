#!/usr/bin/env bash
# boilerpy3 1.0.7 (all its extractors), beside resiliparse 2.0.1.
#
# Guess: words are divided where a browser divides them: at a line break, and nowhere within a word.
# Seen: a line break that is written <br/> or <br />, as WordPress, MediaWiki and all XHTML do, is not seen, and the
#   words around it are joined: "sevenbridges". <br> is a break. <hr/> and <img/> are lost alike. And a word with an
#   element within it is cut, unless the element is one of a few (b, i, em, span, sub and the like): a link with a
#   suffix, <a>bridge</a>s, as an encyclopedia has it, is "bridge s", and so with abbr, ins, mark and small.
# What follows: replace "/>" by ">" in the page before; links need their tags taken out.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boilerpy3==1.0.7 resiliparse==2.0.1
cd "$place"
cat > try.py <<'PYTHON'
import sys

from boilerpy3 import extractors
from resiliparse.extract.html2text import extract_plain_text

AROUND = (
    "The history of the town begins in the ninth century, when the monks built a small house on the hill above the "
    "river and the farmers of the valley gave them a part of what they had."
)
BREAKS = "<br>", "<br/>", "<br />", "<hr>", "<hr/>", "<img src=x>", "<img src=x />"
TAGS = "a abbr b em i ins mark small span strong sub u".split()


def page(words: str) -> str:
    middle = f"In that year the abbot of the house wrote to the king that {words} over the river had been lost."
    paragraphs = "".join(f"<p>{text}</p>" for text in (AROUND, middle, AROUND))
    return f"<html><head><title>Town</title></head><body><article><h1>Town</h1>{paragraphs}</article></body></html>"


def between(text: str) -> str:
    return " ".join(text.split()).split("the king that ")[1].split(" over the river")[0]


def extract(words: str) -> set[str]:
    kinds = extractors.ArticleExtractor, extractors.DefaultExtractor, extractors.KeepEverythingExtractor
    return {between(kind().get_content(page(words))) for kind in kinds}


breaks = {sign: extract(f"seven{sign}bridges") for sign in BREAKS}
links = {tag: extract(f"seven <{tag}>bridge</{tag}>s") for tag in TAGS}
print("breaks:", breaks)
print("elements in a word:", links)
others = {between(extract_plain_text(page(f"seven{sign}bridges"))) for sign in BREAKS[:3]}
others |= {between(extract_plain_text(page(f"seven <{tag}>bridge</{tag}>s"))) for tag in TAGS}
print("resiliparse:", others)
joined = all(breaks[sign] == {"sevenbridges"} for sign in ("<br/>", "<br />", "<hr/>"))
cut = all(links[tag] == {"seven bridge s"} for tag in ("a", "ins", "mark", "small"))
right = breaks["<br>"] == breaks["<hr>"] == links["b"] == links["span"] == others == {"seven bridges"}
sys.exit(not (joined and cut and right))
PYTHON
venv/bin/python try.py
