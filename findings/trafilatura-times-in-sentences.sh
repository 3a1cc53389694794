#!/usr/bin/env bash
# trafilatura 2.3.1 (extract), beside resiliparse 2.0.1.
#
# Guess: of a sentence in the main text each word is kept; at most elements beside the text, such as a byline's date,
#   go.
# Seen: <time> goes with its content wherever it is: "The war began on and ended on in the west.", in all modes and
#   formats (favor_recall, favor_precision, fast, XML). <math> and <label> go too; <abbr>, <cite>, <dfn> and <code>
#   stay. html2txt, baseline and resiliparse keep all. Nothing in the result tells.
# What follows: a corpus made with it has sentences without their dates. Turn <time> into <span> before.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" trafilatura==2.3.1 resiliparse==2.0.1
cd "$place"
cat > try.py <<'PYTHON'
import sys

import trafilatura
from resiliparse.extract.html2text import extract_plain_text

FILLING = "<p>" + "This sentence of the article says something about the matter at hand, at some length. " * 3 + "</p>"
DATED = "<p>The war began on <time>28 July 1914</time> and ended on <time>11 November 1918</time> in the west.</p>"
TAGS = ["time", "math", "label", "abbr", "cite", "dfn", "code"]
MODES = [{}, {"favor_recall": True}, {"favor_precision": True}, {"fast": True}, {"output_format": "xml"}]


def page(inner: str) -> str:
    body = f"<article><h1>Title</h1>{FILLING * 2}{inner}{FILLING * 2}</article>"
    return f"<html><head><title>Title</title></head><body>{body}</body></html>"


def sentence(text: str) -> str:
    (line,) = [line.strip() for line in text.splitlines() if "The war" in line]
    return line


def kept(tag: str) -> bool:
    return "gamma" in trafilatura.extract(page(f"<p>alpha beta <{tag}>gamma</{tag}> delta.</p>"))


dated = [sentence(trafilatura.extract(page(DATED), **mode)) for mode in MODES]
gone = [tag for tag in TAGS if not kept(tag)]
whole = "The war began on 28 July 1914 and ended on 11 November 1918 in the west."
cured = sentence(trafilatura.extract(page(DATED).replace("<time", "<span").replace("</time", "</span")))
others = [trafilatura.html2txt(page(DATED)), trafilatura.baseline(page(DATED))[1]]
others.append(extract_plain_text(page(DATED)))
print(*dated, f"with <span>: {cured}", f"elements that go: {gone}", sep="\n")
lost = all("The war began on and ended on in the west." in line for line in dated)
sys.exit(not (lost and gone == TAGS[:3] and cured == whole and all(whole in text for text in others)))
PYTHON
venv/bin/python try.py
