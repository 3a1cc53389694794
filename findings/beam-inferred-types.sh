#!/usr/bin/env bash
# apache-beam 2.77.0, Python (numpy 2.4.6), with the runner that it takes unless told.
# Guess: elements without type hints arrive as they were sent, whether a shuffle lies between two steps or not.
# Seen: Beam infers the type from the bytecode of a function: any comparison as bool, arithmetic of two bools as bool,
# int ** int as int. The next shuffle encodes by that type without a check. A sum of two conditions (0, 1 or 2) arrives
# as False or True, and as a key it puts two classes into one group; `count ** -1`, a weight, arrives as 0; the mask
# `ids != 0` of an array of one number arrives as True. No warning, no error; without a shuffle all are right. The mask
# of a longer array is an error at the shuffle, "The truth value of an array ... is ambiguous".
# What follows: give such a step `.with_output_types(...)`, or write `sum([a, b])`, `1 / count`, `np.not_equal(ids, 0)`.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check apache-beam==2.77.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import logging
from pathlib import Path

logging.disable(logging.CRITICAL)

import apache_beam as beam
import numpy as np

LENGTHS = [100, 200, 1000]  # words of three documents
GIVEN = [1, 2, 4]  # how often three words come


def results(steps):
    """What a step receives: read from a file, as steps run where the runner wants."""
    path = Path("received")
    path.write_text("")
    with beam.Pipeline() as pipeline:
        pipeline | steps | "Note" >> beam.Map(lambda what: path.open("a").write(f"{what!r}\n"))
    return sorted(path.read_text().split("\n")[:-1])


def by_class(words):
    return ((words > 128) + (words > 512), words)


def groups(step):
    return beam.Create(LENGTHS) | step | beam.GroupByKey() | beam.MapTuple(lambda key, given: (key, sorted(given)))


def mask(*ids):
    return beam.Create([np.array(ids)]) | "Mask" >> beam.Map(lambda ids: ids != 0)


weights = beam.Create(GIVEN) | "Weigh" >> beam.Map(lambda count: count**-1)
seen = {
    "classes": results(groups(beam.Map(by_class))),
    "classes, with a hint": results(groups(beam.Map(by_class).with_output_types(tuple[int, int]))),
    "weights": results(weights | beam.Reshuffle()),
    "weights, no shuffle": results(weights),
    "weights, divided": results(beam.Create(GIVEN) | beam.Map(lambda count: 1 / count) | beam.Reshuffle()),
    "mask of one": results(mask(7) | beam.Reshuffle()),
    "mask of one, no shuffle": results(mask(7)),
    "mask by numpy": results(
        beam.Create([np.array([7, 0])]) | beam.Map(lambda ids: np.not_equal(ids, 0)) | beam.Reshuffle()
    ),
}
try:
    seen["mask of two"] = results(mask(7, 0) | beam.Reshuffle())
except ValueError as error:
    seen["mask of two"] = "ambiguous" in str(error)
for name, got in seen.items():
    print(name, got)
right = ["0.25", "0.5", "1.0"]
assert seen == {
    "classes": ["(False, [100])", "(True, [200, 1000])"],
    "classes, with a hint": ["(0, [100])", "(1, [200])", "(2, [1000])"],
    "weights": ["0", "0", "1"],
    "weights, no shuffle": right,
    "weights, divided": right,
    "mask of one": ["True"],
    "mask of one, no shuffle": ["array([ True])"],
    "mask by numpy": ["array([ True, False])"],
    "mask of two": True,
}
PYTHON
venv/bin/python -W ignore try.py
