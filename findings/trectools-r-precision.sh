#!/usr/bin/env bash
# trectools 0.0.50 with pandas 3.1.1, beside pandas 2.3.3.
#
# Guess: R-precision of a query is the share of relevant documents among its first R hits, at most 1.
# Seen: 1.5 and 1.0 for two queries whose values are 0.5 and 0.5. pandas 3 leaves the column that a table is grouped
#   by out of what `apply` sees; trectools then joins hits and judgements by document alone, and counts those of all
#   queries. Its requirement, pandas >= 0.15, installs pandas 3. With pandas 2 the values are right. MAP is right with
#   both.
# What follows: pin pandas < 3 beside it, or take R-precision from trec_eval's wrappers.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/try.py" <<'PY'
import sys

from trectools import TrecEval, TrecQrel, TrecRun

judged = "1 0 a 1\n1 0 b 1\n1 0 c 0\n2 0 a 1\n2 0 b 0\n2 0 d 1\n"
found = {1: "acb", 2: "abd"}
hits = [f"{query} Q0 {name} {rank} {9 - rank} run" for query in found for rank, name in enumerate(found[query], 1)]
for name, text in (("qrels", judged), ("run", "\n".join(hits) + "\n")):
    with open(f"{sys.argv[1]}/{name}", "w") as file:
        file.write(text)
result = TrecEval(TrecRun(f"{sys.argv[1]}/run"), TrecQrel(f"{sys.argv[1]}/qrels"))
print([round(float(value), 3) for value in result.get_rprec(per_query=True).iloc[:, 0]], round(result.get_map(), 3))
PY
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check trectools==0.0.50 pandas==3.1.1
new=$("$work/venv/bin/python" -W ignore "$work/try.py" "$work")
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pandas==2.3.3
old=$("$work/venv/bin/python" -W ignore "$work/try.py" "$work")
printf 'R-precision of two queries, MAP; pandas 3.1.1: %s; pandas 2.3.3: %s\n' "$new" "$old"
[[ $new == "[1.5, 1.0] 0.833" && $old == "[0.5, 0.5] 0.833" ]]
