#!/usr/bin/env bash
# bm25s 0.3.16.
#
# Guess: a library leaves the level of its messages to the program; with logging.basicConfig(level=logging.INFO), as
#   most programs have it, no line of DEBUG is printed.
# Seen: "DEBUG:bm25s:Building index from IDs objects" for each index. The package sets its own logger to DEBUG when it is
#   imported, and a logger with a level of its own does not ask the root's. Other libraries' lines of DEBUG stay away.
# What follows: logging.getLogger("bm25s").setLevel(logging.WARNING), after the import.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/try.py" <<'PY'
import logging
import sys

logging.basicConfig(level=logging.INFO, stream=sys.stdout)
import bm25s

logging.getLogger("another").debug("not shown")
if sys.argv[1:]:
    logging.getLogger("bm25s").setLevel(logging.WARNING)
texts = bm25s.tokenize(["a cat sat", "a dog ran"], show_progress=False)
bm25s.BM25().index(texts, show_progress=False)
PY
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check bm25s==0.3.16
seen=$("$work/venv/bin/python" "$work/try.py")
quiet=$("$work/venv/bin/python" "$work/try.py" quiet)
printf 'with INFO: %s\nafter setLevel(WARNING): %s\n' "$seen" "${quiet:-nothing}"
[[ $seen == "DEBUG:bm25s:Building index from IDs objects" && -z $quiet ]]
