#!/usr/bin/env bash
# rjieba 0.2.2 beside jieba 0.42.1: words of Latin letters within Chinese text.
#
# Guess: the port to Rust has the words of the original, as it does for Chinese letters.
# Seen: the original divides at "_" and "." between letters, the port keeps "foo_bar" and "c.com" whole; both keep 3.14.
# What follows: whole-word masks of mixed text differ between corpora that were segmented by the one and by the other.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check rjieba==0.2.2 jieba==0.42.1 'setuptools<81'
cat > "$work/try.py" <<'PY'
import logging
import sys

import jieba
import rjieba

jieba.setLogLevel(logging.ERROR)
same = "小明硕士毕业于中国科学院计算所，后在日本京都大学深造"
mixed = "变量foo_bar在c.com等于3.14"
print(list(jieba.cut(mixed)), rjieba.cut(mixed))
equal = list(jieba.cut(same)) == rjieba.cut(same)
original, port = set(jieba.cut(mixed)), set(rjieba.cut(mixed))
sys.exit(not (equal and {"foo", "bar", "3.14"} <= original and {"foo_bar", "c.com", "3.14"} <= port))
PY
"$work/venv/bin/python" "$work/try.py"
