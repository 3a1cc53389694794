#!/usr/bin/env bash
# pubmed_parser 0.5.1: records that PubMed deletes, and exponents.
#
# Guess: parse_medline_xml yields a row with delete=True for each PMID below DeleteCitation, as its docstring says
# ("Articles that have been deleted will be added"), and keeps 10<sup>6</sup> apart from 106.
# Seen: no row for a deleted PMID, `delete` is False in every row; an exponent is joined to its base: "106 cells".
# What follows: who reads daily update files with it keeps withdrawn records, and numbers of another size.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pubmed_parser==0.5.1
cat > "$work/try.py" <<'PY'
import gzip
import sys

import pubmed_parser

ARTICLE = """<PubmedArticle><MedlineCitation Status="MEDLINE"><PMID Version="1">11</PMID><Article>
<Journal><JournalIssue><PubDate><Year>2001</Year></PubDate></JournalIssue><Title>Journal</Title></Journal>
<ArticleTitle>Cells in water.</ArticleTitle>
<Abstract><AbstractText>We counted 10<sup>6</sup> cells.</AbstractText></Abstract>
</Article></MedlineCitation></PubmedArticle>"""
DELETED = '<DeleteCitation><PMID Version="1">22</PMID><PMID Version="1">33</PMID></DeleteCitation>'
path = sys.argv[1]
with gzip.open(path, "wt") as file:
    file.write(f'<?xml version="1.0"?><PubmedArticleSet>{ARTICLE}{DELETED}</PubmedArticleSet>')
rows = [(row["pmid"], row["delete"], row["abstract"].strip()) for row in pubmed_parser.parse_medline_xml(path)]
print(rows)
sys.exit(rows != [("11", False, "We counted 106 cells.")])
PY
"$work/venv/bin/python" "$work/try.py" "$work/update.xml.gz"
