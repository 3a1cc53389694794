#!/usr/bin/env bash
# inscriptis 2.7.6 (get_text, "layout-aware"), beside resiliparse 2.0.1.
#
# Guess: what a browser shows on lines of their own is no single word in the text, as in resiliparse.
# Seen: <section>, <dl>, <dt>, <dd>, <details>, <fieldset>, <form>, <hr> and others are inline: the last word before
#   and the first after are one ("CorpusA set of texts.TokenA unit."), in both of its style sheets. <div>, <article>,
#   <p> and lists are right.
# What follows: glossaries and pages of HTML 5 give words that nobody wrote. Give ParserConfig a css with
#   HtmlElement(display=Display.block) for them, which is right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check inscriptis==2.7.6 resiliparse==2.0.1
cd "$place"
cat > try.py <<'PYTHON'
import sys

from inscriptis import get_text
from inscriptis.css_profiles import CSS_PROFILES
from inscriptis.html_properties import Display
from inscriptis.model.config import ParserConfig
from inscriptis.model.html_element import HtmlElement
from resiliparse.extract.html2text import extract_plain_text

TAGS = ["div", "article", "p", "section", "dl", "dt", "dd", "details", "fieldset", "form", "center", "hr"]
BLOCK = HtmlElement(display=Display.block)


def page(tag: str) -> str:
    if tag == "hr":
        return "<html><body>alpha<hr>beta</body></html>"
    if tag in ("dt", "dd"):
        return "<html><body><dl><dt>alpha</dt><dd>beta</dd></dl></body></html>"
    return f"<html><body><{tag}>alpha</{tag}><{tag}>beta</{tag}></body></html>"


def joined(convert) -> list[str]:
    return [tag for tag in TAGS if "alphabeta" in convert(page(tag))]


own = ParserConfig(css=CSS_PROFILES["strict"] | dict.fromkeys(TAGS, BLOCK))
seen = {name: joined(lambda text, css=css: get_text(text, ParserConfig(css=css))) for name, css in CSS_PROFILES.items()}
cured, other = joined(lambda text: get_text(text, own)), joined(extract_plain_text)
print("inscriptis joins:", seen, "with a css of its own:", cured, "resiliparse:", other)
print(repr(get_text("<dl><dt>Corpus</dt><dd>A set of texts.</dd><dt>Token</dt><dd>A unit.</dd></dl>")))
sys.exit(not (all(tags == TAGS[3:] for tags in seen.values()) and cured == other == []))
PYTHON
venv/bin/python try.py
