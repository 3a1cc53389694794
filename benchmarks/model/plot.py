"""Plot of the results of `benchmarks.model.train --out`: tokens per second relative to ours.

python -m benchmarks.model.plot rows.jsonl step.svg
"""

import argparse
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.model.train import PEERS
from benchmarks.shared import read
from pipeline.reporting import plots

Setting = tuple[str, str, int]  # size, precision, sequence length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    options.picture.write_text(draw([row for row in read(options.rows) if row["peer"] in list(PEERS)[:6]]))


def draw(rows: list[dict[str, Any]]) -> str:
    """Draw one group of bars per setting: each peer's rate relative to ours, of its last run."""
    shares: dict[Setting, dict[str, float]] = {}
    for row in rows:
        setting = (row["size"], row["precision"], row["length"])
        shares.setdefault(setting, {})[row["peer"]] = 1 / row["ratio"]
    settings = list(shares)
    peers = [peer for peer in PEERS if any(peer in found for found in shares.values())]
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(peers)
    for number, peer in enumerate(peers):
        groups = [group for group, s in enumerate(settings) if peer in shares[s]]
        heights = [shares[settings[group]][peer] for group in groups]
        axes.bar(
            [group + (number - len(peers) / 2 + 0.5) * width for group in groups],
            heights,
            width,
            label=PEERS[peer],
            color=plots.COLOURS[number % len(plots.COLOURS)],
            alpha=1.0 if number < len(plots.COLOURS) else 0.5,
        )
    axes.set_xticks(range(len(settings)), [f"{s}\n{p}, {n}" for s, p, n in settings])
    axes.set_ylabel("tokens/s, ours = 1")
    figure.legend(loc="outside upper center", ncols=3, fontsize=8)
    return plots.svg(figure)


if __name__ == "__main__":
    main()
