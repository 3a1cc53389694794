"""Print the records as tables, one for each machine and state of the code; draw their curves.

python -m benchmarks.records [--plot records.svg]
"""

import argparse
from itertools import groupby
from pathlib import Path

from benchmarks.records.table import Row, all_records, table
from pipeline.reporting import plots


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path, help="an SVG of the curves, seven of the longest trainings")
    options = parser.parse_args()
    rows = sorted(all_records(), key=place)
    for (machine, commit), group in groupby(rows, key=place):
        print(f"\n{machine}, code {commit}\n\n{table(list(group))}")
    if options.plot:
        longest = sorted(rows, key=lambda row: -row["tokens"])[:7]
        named = [("-".join(row["name"].split("-")[:4]), *column(row["curve"])) for row in longest]
        picture = plots.svg(plots.lines(named, "tokens", "held-out bits per byte"))
        options.plot.write_text(picture, encoding="utf-8")


def column(curve: list[list[float]]) -> tuple[list[float], list[float]]:
    return [tokens for tokens, _ in curve], [bits for _, bits in curve]


def place(row: Row) -> tuple[str, str]:
    return row["machine"], row["commit"]


if __name__ == "__main__":
    main()
