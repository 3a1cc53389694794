#!/usr/bin/env bash
# tfrecord 1.14.6 (tfrecord_loader, TFRecordDataset), numpy 2.4.6.
#
# Guess: a feature of bytes comes back as it was written, one value or several: rows of token ids of 16 bits, or a hash.
# Seen: one value is the bytes themselves. Several are an array of numpy's fixed-width strings, which drops zeros at
#   the end: ids 5, 300, 7 in two bytes each come back as five bytes, and a row of [PAD]s as none. Zeros within stay.
#   Each id below 256 at the end of a row loses its upper byte, so that frombuffer raises, or reads less. No warning.
# What follows: write one value (all rows, then their lengths as ints), or lists of ints.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check tfrecord==1.14.6 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import numpy as np
import tfrecord

IDS = [[5, 300, 7], [0, 0], [1, 2, 3, 500], [256, 512, 0, 0]]
rows = [np.array(ids, dtype="<u2").tobytes() for ids in IDS]
writer = tfrecord.TFRecordWriter("rows.tfrecord")
writer.write({"several": (rows, "byte"), "single": (rows[0], "byte"), "ids": (IDS[0], "int")})
writer.close()
(row,) = tfrecord.tfrecord_loader("rows.tfrecord", None)
found = [bytes(value) for value in row["several"]]
for written, read in zip(rows, found):
    print(f"written {written.hex(' ')!r}, read {read.hex(' ')!r}")
print("one value:", row["single"] == rows[0], "ids:", row["ids"].tolist())
stripped = found == [written.rstrip(b"\0") for written in rows] and found != rows
sys.exit(not (stripped and row["single"] == rows[0] and row["ids"].tolist() == IDS[0]))
PYTHON
venv/bin/python try.py
