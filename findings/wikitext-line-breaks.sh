#!/usr/bin/env bash
# mwparserfromhell 0.7.2 (strip_code) and wikitextparser 3.0.0 (plain_text).
#
# Guess: words that a page shows on lines of their own are words of their own in the text; nothing but markup is lost.
# Seen: tags go without a blank in their place, in both: <br>, as infoboxes and poems have it, joins the word before and
#   that after ("London<br>Paris" is "LondonParis"), and so do <p>, <div>, <blockquote> and the cells of a table in
#   HTML. Tables in wikitext are right. mwparserfromhell drops formulas ("let <math>x</math> be" has no x),
#   wikitextparser pictures' captions. Sub- and superscripts are glued: 10<sup>6</sup> is 106.
# What follows: each <br> makes a word that nobody wrote. Put a blank or a line's end for such tags before.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check mwparserfromhell==0.7.2 wikitextparser==3.0.0
cd "$place"
cat > try.py <<'PYTHON'
import sys

import mwparserfromhell
import wikitextparser

TEXTS = {
    "London<br>Paris<br />Rome": ["LondonParisRome"] * 2,
    "<p>one</p><p>two</p><div>three</div>": ["onetwothree"] * 2,
    "<blockquote>quoted</blockquote>after": ["quotedafter"] * 2,
    "<table><tr><td>cell</td><td>other</td></tr></table>": ["cellother"] * 2,
    "10<sup>6</sup> cells": ["106 cells"] * 2,
    "let <math>x</math> be": ["let be", "let x be"],
    "[[File:a.jpg|thumb|A cat]]": ["thumb|A cat", ""],
    "{|\n| cell || other\n|}": ["cell other"] * 2,
}
seen = []
for text, expected in TEXTS.items():
    found = [mwparserfromhell.parse(text).strip_code(), wikitextparser.parse(text).plain_text()]
    found = [" ".join(one.split()) for one in found]
    print(f"{text!r}: mwparserfromhell {found[0]!r}, wikitextparser {found[1]!r}")
    seen.append(found == expected)
sys.exit(not all(seen))
PYTHON
venv/bin/python try.py
