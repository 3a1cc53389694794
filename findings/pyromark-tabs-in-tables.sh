#!/usr/bin/env bash
# pyromark 0.10.3 (pulldown-cmark of Rust), beside cmarkgfm 2025.10.22 (GitHub's own parser) and markdown-it-py 4.3.0.
#
# Guess: what GitHub shows as a table is one, however its columns are aligned.
# Seen: with a tab anywhere in the row of dashes, as editors align columns, there is no table: header, dashes and cells
#   are one paragraph of text, with bars. Tabs in other rows are right. The two others find the table.
# What follows: of a corpus of documentation, rows such as "| 2 | 0b11 |" stand between sentences. Put blanks in place
#   of tabs in rows of dashes, or leave out lines between bars before.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyromark==0.10.3 cmarkgfm==2025.10.22 \
    markdown-it-py==4.3.0
cd "$place"
cat > try.py <<'PYTHON'
import sys

from cmarkgfm import github_flavored_markdown_to_html
from markdown_it import MarkdownIt
from pyromark import Options, html

TABLES = {
    "blanks": "| base | digits |\n| --- | --- |\n| 2 | 0b11 |\n",
    "tabs in the header and the cells": "| base\t| digits\t|\n| --- | --- |\n| 2\t| 0b11\t|\n",
    "a tab behind dashes": "| base | digits |\n| ---\t| --- |\n| 2 | 0b11 |\n",
    "a tab before dashes": "| base | digits |\n|\t--- | --- |\n| 2 | 0b11 |\n",
}
PARSERS = {
    "pyromark": lambda text: html(text, options=Options.ENABLE_TABLES),
    "cmarkgfm": github_flavored_markdown_to_html,
    "markdown-it-py": MarkdownIt("commonmark").enable("table").render,
}
found = {name: [tab for tab, text in TABLES.items() if "<table" in parse(text)] for name, parse in PARSERS.items()}
for name, tables in found.items():
    print(f"{name} finds a table with: {', '.join(tables)}")
print(PARSERS["pyromark"](TABLES["a tab behind dashes"]))
right = found["cmarkgfm"] == found["markdown-it-py"] == list(TABLES)
sys.exit(not (right and found["pyromark"] == list(TABLES)[:2]))
PYTHON
venv/bin/python try.py
