#!/usr/bin/env bash
# resiliparse 2.0.1 (extract_plain_text with main_content=True).
# Guess: of an article, the text of each paragraph is whole, in every script.
# Seen: a text node of one character of three bytes of UTF-8, U+0800 to U+FFFF, is left out: 、 between two links, the
# character of a ruby, a particle in Japanese, ।, €, — or − in an element of its own. Meant are the icons of fonts, in
# the private use area: bytes are compared as a little-endian number, whose last byte is that of any such character.
# What follows: of pages in Chinese, Japanese, Korean, Hindi or Thai, a model learns text without such characters, and
# of formulas in MathML without their minus signs.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check resiliparse==2.0.1
"$place/venv/bin/python" - <<'PYTHON'
from resiliparse.extract.html2text import extract_plain_text

page = (
    "<html><body><article><p><a href='t'>東京</a>、<a href='o'>大阪</a>と<b>京都</b>。</p>"
    "<p>It cost 5<b>€</b>, or 5<b>£</b>.</p></article></body></html>"
)
seen = {main: extract_plain_text(page, main_content=main).split("\n") for main in (False, True)}
print(seen)
assert [line for line in seen[False] if line] == ["東京、大阪と京都。", "It cost 5€, or 5£."]
assert [line for line in seen[True] if line] == ["東京大阪京都", "It cost 5, or 5£."]
PYTHON
