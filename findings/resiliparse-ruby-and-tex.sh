#!/usr/bin/env bash
# resiliparse 2.0.1 (extract_plain_text).
# Guess: the plain text of a page has each word once: of ruby the characters, of MathML what is shown.
# Seen: the reading of a character is glued to it ("漢字かんじ"), where no rp puts brackets between; and of a formula the
# TeX in <annotation>, which no browser shows, follows what is shown ("x=1x=1"). Both with and without main_content;
# skip_elements=["rt", "rp", "annotation"] leaves them out.
# What follows: pages for learners and children in Japanese, and Wikipedia's formulas, give words that nobody wrote.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check resiliparse==2.0.1
"$place/venv/bin/python" - <<'PYTHON'
from resiliparse.extract.html2text import extract_plain_text

ruby = "<html><body><article><p><ruby>漢字<rt>かんじ</rt></ruby>を読む。</p></article></body></html>"
annotated = "<semantics><mrow><mi>x</mi><mo>=</mo><mn>1</mn></mrow><annotation>x=1</annotation></semantics>"
formula = f"<html><body><article><p>Let <math>{annotated}</math> be.</p></article></body></html>"
for main in (False, True):
    seen = [extract_plain_text(page, main_content=main).strip() for page in (ruby, formula)]
    left = [
        extract_plain_text(page, main_content=main, skip_elements=["rt", "rp", "annotation"]).strip()
        for page in (ruby, formula)
    ]
    print(main, seen, left)
    assert seen == ["漢字かんじを読む。", "Let x=1x=1 be."]
    assert left == ["漢字を読む。", "Let x=1 be."]
PYTHON
