#!/usr/bin/env bash
# newspaper4k 0.9.6 (Article.text), beside resiliparse 2.0.1.
#
# Guess: of an article the words are kept apart as a browser shows them, and a sentence of a paragraph is whole,
#   whatever classes the page's style gives its words.
# Seen: the cells of a table are one word for all of it, "NameSizeRomeItaly"; lists, <dl> and <div> are right. And an
#   element (not <em>, <b>) goes with its words if its class or id has "date", "tags", "timestamp" or the like
#   anywhere within: <span class="candidate"> and <a class="updated"> leave holes in sentences, as "date" is a part of
#   both. Nothing tells; other classes ("note", "person") keep the words.
# What follows: a news corpus made with it loses the names of candidates on pages that mark them, and tables are noise.
#   Take the classes away, and put blanks between cells, before it reads.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check newspaper4k==0.9.6 resiliparse==2.0.1
cd "$place"
cat > try.py <<'PYTHON'
import sys

from newspaper import Article
from resiliparse.extract.html2text import extract_plain_text

AROUND = (
    "The history of the town begins in the ninth century, when the monks built a small house on the hill above the "
    "river and the farmers of the valley gave them a part of what they had."
)
SENTENCE = "In that year the people of the town and of the valley gave {} the most votes of all who stood for the office."
TABLE = "<table><tr><th>Name</th><th>Size</th></tr><tr><td>Rome</td><td>Italy</td></tr></table>"


def read(middle: str) -> tuple[str, str]:
    body = f"<article><h1>Town</h1><p>{AROUND}</p>{middle}<p>{AROUND}</p></article>"
    page = f"<html><head><title>Town</title></head><body>{body}</body></html>"
    article = Article("https://example.org/town")
    article.download(input_html=page)
    article.parse()
    return article.text.replace(AROUND, ""), extract_plain_text(page, main_content=True).replace(AROUND, "")


def sentence(tag: str, name: str) -> tuple[bool, bool]:
    mine, other = read(f"<p>{SENTENCE.format(f'<{tag} {name}>Mary Smith</{tag}>')}</p>")
    print(f"<{tag} {name}>: newspaper4k {mine.strip()!r}")
    return "Mary Smith" in mine, "Mary Smith" in other


table, other = (text.split() for text in read(TABLE))
print("table:", table, "resiliparse:", [word for word in other if word not in ("Town", "|")])
lost = [sentence(tag, f'class="{name}"') for tag, name in (("span", "candidate"), ("a", "updated"), ("span", "timestamp"))]
lost.append(sentence("span", 'id="candidate"'))
kept = [sentence("span", f'class="{name}"') for name in ("person", "note")]
seen = table == ["NameSizeRomeItaly"] and "NameSizeRomeItaly" not in other
sys.exit(not (seen and lost == [(False, True)] * 4 and kept == [(True, True)] * 2))
PYTHON
venv/bin/python try.py 2> log || { cat log; exit 1; }
