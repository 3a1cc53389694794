#!/usr/bin/env bash
# tei_reader 0.0.17: the order of words around an empty element.
#
# Guess: the text of a paragraph has its words in the order of the file, and of a <choice> one reading.
# Seen: what follows an empty element such as <lb/> moves behind the elements after it ("Win" + "dow" becomes
# "Winone two.dow"), and both readings of sic and corr stay, joined ("tehthe").
# What follows: hyphenated prints (DTA, ELTeC, Perseus) read with it have words in another order.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check tei_reader==0.0.17
cat > "$work/try.py" <<'PY'
import sys

from tei_reader import TeiReader

BODY = '<p>Win<lb break="no"/>dow <w>one</w> two.</p><p>To <choice><sic>teh</sic><corr>the</corr></choice> end.</p>'
HEADER = "<teiHeader><fileDesc><titleStmt><title>A title</title></titleStmt></fileDesc></teiHeader>"
with open(sys.argv[1], "w", encoding="utf-8") as file:
    file.write(f'<TEI xmlns="http://www.tei-c.org/ns/1.0">{HEADER}<text><body>{BODY}</body></text></TEI>')
text = TeiReader().read_file(sys.argv[1]).text
print(repr(text))
sys.exit(not ("Winone two.dow" in text and "tehthe" in text))
PY
"$work/venv/bin/python" "$work/try.py" "$work/page.xml"
