#!/usr/bin/env bash
# gensim 4.4.0 (wikicorpus.filter_wiki, by which WikiCorpus reads a dump), beside mwparserfromhell 0.7.2.
#
# Guess: a "<" that begins no tag is text, as MediaWiki shows it; at worst the sign or its line is lost.
# Seen: all from a "<" to the next ">" is taken out as a tag, over lines, paragraphs and headings: after "p < 0.05" the
#   article goes on behind the next <br> or comparison, and what lies between, here a section with its heading, is not
#   in the text. "&lt;", as dumps and authors write the sign, is made "<" before, and has the same end. An article
#   without a later ">" is whole.
# What follows: articles of medicine, statistics and programming have holes. Before filter_wiki, put another sign for
#   each "<" that no letter, "/" or "!" follows, and for "&lt;".
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check gensim==4.4.0 mwparserfromhell==0.7.2
cd "$place"
cat > try.py <<'PYTHON'
import sys

import mwparserfromhell
from gensim.corpora.wikicorpus import filter_wiki

ARTICLE = """The effect was found in women (p {sign} 0.05) and in men.

== Later studies ==
A second study had [[cohort study|more people]].

The authors thanked the hospital.{end}

The last paragraph."""
SENTENCES = "and in men", "Later studies", "A second study had more people", "thanked the hospital", "last paragraph"


def missing(text: str) -> list[str]:
    return [sentence for sentence in SENTENCES if sentence not in text]


CASES = {"<": ("<", "<br>"), "&lt;": ("&lt;", "<br>"), "> after it": ("<", " (p > 0.1)"), "alone": ("<", "")}
seen = {}
for name, (sign, end) in CASES.items():
    article = ARTICLE.format(sign=sign, end=end)
    other = mwparserfromhell.parse(article).strip_code()
    seen[name] = missing(filter_wiki(article)), missing(other)
    print(f"{name}: gensim loses {seen[name][0]}, mwparserfromhell {seen[name][1]}")
hole = list(SENTENCES[:4])
same = all(seen[name] == (hole, []) for name in ("<", "&lt;", "> after it"))
sys.exit(not (same and seen["alone"] == ([], [])))
PYTHON
venv/bin/python try.py
