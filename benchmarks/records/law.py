"""Fit the law of `hours=` to the records, draw what it leaves, and write `model/training/law.yaml`.

    python -m benchmarks.records.law [--plot docs/images/law.svg]

Bits per byte = density (least + size (parameters / 1e6)^-p + text (tokens worth / 1e6)^-q) (entries / 4096)^r, where
tokens are those of a vocabulary of 4,096, and text that is read again is worth less: Muennighoff et al. 2023. `density`
is that of a corpus next to English Wikipedia's. What it leaves of a corpus is a factor of its own; of an unknown one it
is their mean, and how much they differ is a part of the interval. Each record is also predicted by a law fitted
without it.

Trainings of fewer than a million tokens are left out: up to there all sizes learn how frequent tokens are, and nothing
of their context. Of records that differ in the rate alone, the best counts.
"""

import argparse
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import least_squares

from benchmarks.records.table import all_records
from model.training import law
from pipeline.records.metrics import BITS
from pipeline.reporting import plots

OUT = Path(law.__file__).with_name("law.yaml")
# Where the search starts, and how far from there, in logarithms, a coefficient is likely: few records decide little.
START = {
    "least": (0.6, 0.7),
    "size": (0.3, 1.0),
    "size_power": (0.3, 0.3),
    "text": (2.0, 1.0),
    "text_power": (0.25, 0.5),
    "readings": (10.0, 0.7),
}
CORPUS = "enwiki"  # in whose bytes the law counts
RATE, CLEAR = 0.01, 0.01  # of most records; what of bits per byte is more than chance
USUAL = {
    "length": 64,
    "architecture": "modern",
    "tokens_a_step": 1024,
    "dropout": 0.0,
}  # what the law does not depend on
LEAST = 1_000_000  # tokens of a training that the law is of
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path, help="an SVG of measured against predicted")
    options = parser.parse_args()
    rows = usual([row for row in all_records() if row["design"] != "proof"])  # which judges it
    found, factors = fit(rows)
    left = []
    for row in rows:
        alone, known = fit([other for other in rows if other is not row])
        if row["corpus"] in known:
            left.append(math.log(row[BITS] / expected(alone, known[row["corpus"]], row)))
            print(f"{row['name']}: {row[BITS]:.3f}, without it {row[BITS] / math.exp(left[-1]):.3f} ({left[-1]:+.1%})")
    residual = float(np.sqrt(np.mean(np.square(left))))
    print(f"{len(rows)} records, {found}; factors of corpora {factors}; residual {residual:.3f}")
    OUT.write_text(text_of(rows, found, factors, residual), encoding="utf-8")
    if options.plot:
        draw(rows, found, factors, options.plot)


def usual(rows: list[Row]) -> list[Row]:
    """Return the records that differ in size, text, readings or entries alone, each at its best rate."""
    best: dict[tuple[Any, ...], Row] = {}
    density = usual_density(rows)
    for row in sorted(rows, key=lambda row: -row[BITS]):
        if row["tokens"] >= LEAST and USUAL.items() <= row.items():
            key = tuple(row[key] for key in ("corpus", "words", "readings", "size", "entries", "seed"))
            longer = row["bytes_a_token"] / row["bytes_a_usual_token"]
            best[key] = row | {
                "dense": row["density"] / density,
                "once": row["tokens_once"] * longer,
                "read": row["tokens"] * longer,
            }
    return list(best.values())


def usual_density(rows: list[Row]) -> float:
    """Return the density of the usual corpus: the mean of its records', each of a sample."""
    return float(np.mean([row["density"] for row in rows if row["corpus"] == CORPUS]))


def expected(coefficients: dict[str, float], factor: float, row: Row) -> float:
    readings = row["tokens"] / row["tokens_once"]
    inner = law.outside_embeddings(row["parameters"], row["entries"], int(row["size"].split("x")[1]))
    return factor * law.bits_per_byte(coefficients, inner, row["once"], readings, row["entries"], row["dense"])


def fit(rows: list[Row]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the coefficients, and the factor of each corpus, of the usual one 1."""
    others = list(dict.fromkeys(row["corpus"] for row in rows if row["corpus"] != CORPUS))
    start = np.array([math.log(value) for value, _ in START.values()] + [0.0] + [0.0] * len(others))
    width = np.array([wide for _, wide in START.values()] + [0.3] + [0.2] * len(others))

    def named(x: np.ndarray) -> tuple[dict[str, float], dict[str, float]]:
        values = dict(zip(START, map(float, np.exp(x)), strict=False)) | {"entries_power": float(x[len(START)])}
        return values, {CORPUS: 1.0} | dict(zip(others, map(float, np.exp(x[len(START) + 1 :])), strict=True))

    def misses(x: np.ndarray) -> np.ndarray:
        coefficients, factors = named(x)
        missed = [math.log(row[BITS] / expected(coefficients, factors[row["corpus"]], row)) for row in rows]
        return np.concatenate([np.array(missed) / 0.01, (x - start) / width])

    return named(least_squares(misses, start).x)


def text_of(rows: list[Row], found: dict[str, float], factors: dict[str, float], residual: float) -> str:
    """Return the data file."""
    read = [row["read"] for row in rows]
    english = [row for row in rows if row["corpus"] == CORPUS]
    levels = [math.log(one) for one in factors.values()]
    made = (
        {
            "law": {key: round(value, 4) for key, value in found.items()},
            "residual": round(residual, 4),  # of the logarithm, each record predicted without it
            "level": round(math.exp(float(np.mean(levels))), 4),  # of an unknown corpus, and how much corpora differ
            "levels": round(float(np.std(levels, ddof=1)) if levels[1:] else 0.1, 4),
            "density": round(usual_density(rows), 4),
            "records": len(rows),
            "factors_of_corpora": {key: round(value, 3) for key, value in factors.items()},
            "least_tokens": LEAST,
            "range": {
                "tokens_read": [round(min(read)), round(max(read))],
                "words": sorted({row["words"] for row in rows}),
                "readings": max(row["readings"] for row in rows),
            },
            "sizes": sorted({row["size"] for row in all_records()}, key=lambda size: tuple(map(int, size.split("x")))),
            "bytes_a_token": {row["entries"]: round(row["bytes_a_token"], 3) for row in english},
            "text_of_entries": {  # bytes of the smallest text that a vocabulary was tried on
                entries: round(
                    min(row["tokens_once"] * row["bytes_a_token"] for row in rows if row["entries"] == entries)
                )
                for entries in sorted({row["entries"] for row in rows})
            },
            "fill": round(float(np.mean([row["tokens"] / row["steps"] / row["tokens_a_step"] for row in english])), 3),
        }
        | choices(all_records())
    )
    head = "# Written by `python -m benchmarks.records.law` from benchmarks/records; see docs/choose.md.\n"
    return head + yaml.safe_dump(made, sort_keys=False)


def choices(rows: list[Row]) -> Row:
    """Return the rates of sizes: the usual one, unless another is clearly better."""
    found: dict[int, dict[float, float]] = {}
    common = USUAL | {"corpus": CORPUS, "words": 1_000_000, "readings": 1, "entries": 4096, "seed": 0}
    for row in rows:
        if common.items() <= row.items():
            found.setdefault(int(row["size"].split("x")[1]), {})[row["rate"]] = row[BITS]
    rates = {}
    for hidden, of_rates in sorted(found.items()):
        best = min(of_rates, key=lambda rate: of_rates[rate])
        rates[hidden] = best if of_rates[best] < (1 - CLEAR) * of_rates.get(RATE, math.inf) else RATE
    return {"rate": rates}


def draw(rows: list[Row], found: dict[str, float], factors: dict[str, float], path: Path) -> None:
    """Draw what the law leaves of the records of a corpus, by the bytes read; of a single one it is nothing."""
    curves = []
    for corpus, records in Counter(row["corpus"] for row in rows).items():
        if records == 1:
            continue
        mine = sorted((row for row in rows if row["corpus"] == corpus), key=lambda row: row["tokens"])
        left = [100 * (row[BITS] / expected(found, factors[corpus], row) - 1) for row in mine]
        curves.append((corpus, [row["read"] / 1e6 for row in mine], left))
    figure = plots.lines(curves, "million tokens of 4,096 entries read", "measured against predicted, %")
    path.write_text(plots.svg(figure), encoding="utf-8")


if __name__ == "__main__":
    main()
