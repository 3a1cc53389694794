"""Plots: as SVG text for a light or dark page, where `INK` becomes `currentColor`, and as files."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipeline.common.tables import read_table
from pipeline.console.redact import one_line, redact
from pipeline.storage.atomic import atomic_path, write_text

TABLE = read_table(__file__, "plots.yaml")
INK = TABLE["style"]["text.color"]  # placeholder for the page's text colour
SIZE = (4.6, 2.7)  # inches
COLOURS = ("#3b82f6", "#7c6fb0", "#5b9aa0", "#8f8f8f")
DASHES = ("-", "--", ":", "-.")  # of more curves than colours
MARKS = (INK, "#d97706")  # what a bar is compared with
OUTCOMES = (COLOURS[0], MARKS[1], *COLOURS[1:])  # the last is that of all others

mpl.rcParams |= TABLE["style"]

Curve = tuple[str, Sequence[float], Sequence[float]]  # label, x, y


def svg(figure: Figure) -> str:
    """Return the figure as an `<svg>` element."""
    buffer = io.StringIO()
    metadata = {"Date": None, "Creator": None}
    figure.savefig(buffer, format="svg", transparent=True, bbox_inches="tight", metadata=metadata)
    text = buffer.getvalue().replace(INK, "currentColor")
    return text[text.index("<svg") :]


def save(figure: Figure, caption: str, folder: Path) -> None:
    """Write the figure as an SVG and a PNG file, named by its caption, with a number where that is taken."""
    folder.mkdir(exist_ok=True)
    stem = re.sub(r"[^\w.]+", "-", one_line(re.split("[:;]", caption)[0]).lower())[:80].strip("-.") or "figure"
    count = len([*folder.glob(f"{stem}.svg"), *folder.glob(f"{stem}-[0-9]*.svg")])
    path = folder / f"{stem}-{count + 1}.svg" if count else folder / f"{stem}.svg"
    write_text(path, redact(svg(figure).replace("currentColor", INK)) + "\n")
    with atomic_path(path.with_suffix(".png")) as temporary:
        figure.savefig(temporary, format="png", dpi=150, facecolor="white", bbox_inches="tight")


def shown(name: str) -> str:
    """Return a name as a label; a legend leaves out those that begin with `_`."""
    return f"{' ' * name.startswith('_')}{one_line(name)}"


def lines(
    curves: Sequence[Curve], x_label: str, y_label: str, bands: Mapping[str, Sequence[float]] | None = None
) -> Figure:
    """Plot curves over a common axis; `bands` has how far a band reaches above and below a curve, by label."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    for place, (label, x, y) in enumerate(curves):
        style, colour = DASHES[place // len(COLOURS) % len(DASHES)], COLOURS[place % len(COLOURS)]
        style = "o" if label == "validation" else style
        axes.plot(x, y, style, label=shown(label), color=colour, linewidth=1.4, markersize=4)
        if bands and label in bands:
            low, high = ([v + sign * d for v, d in zip(y, bands[label], strict=True)] for sign in (-1, 1))
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set(xlabel=shown(x_label), ylabel=shown(y_label))
    if len(curves) > 1:
        axes.legend()
    # Few ticks, a thin grid and readable numbers: 30,000; 0.001.
    axes.grid(alpha=0.15)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(number)
    return figure


def number(value: float, _: object = None) -> str:
    """Format a tick label: thousands separators, no trailing zeros, scientific if below 0.001."""
    if value and abs(value) < 1e-3:
        return f"{value:.1e}".replace("e-0", "e-").replace(".0e", "e")
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def histogram(counts: Mapping[int, int], x_label: str, y_label: str) -> Figure:
    """Draw a histogram of whole numbers, given with their counts, in at most 64 bars."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    bins = min(64, max(counts) - min(counts) + 1)
    axes.hist(list(counts), bins=bins, weights=list(counts.values()), color=COLOURS[0], log=True)
    axes.set(xlabel=x_label, ylabel=y_label, ylim=(0.7, None))
    axes.yaxis.set_major_formatter(number)
    return figure


def bars(
    names: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], label: str, whiskers: Any = None
) -> Figure:
    """Draw a horizontal bar per name, labelled with its value; series after the first are marks."""
    figure = Figure(figsize=(SIZE[0], 1.3 + 0.45 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    (title, values), *others = series
    places = range(len(names))
    error = {"ecolor": INK, "elinewidth": 1, "capsize": 3}
    axes.barh(places, values, 0.5, label=shown(title), color=COLOURS[0], xerr=whiskers, error_kw=error)
    for (other, marked), colour in zip(others, MARKS, strict=False):
        axes.scatter(marked, places, marker="|", s=260, linewidths=2, color=colour, label=shown(other), zorder=3)
    axes.set_yticks(places, [f"{shown(name)}  {number(value)}" for name, value in zip(names, values, strict=True)])
    axes.invert_yaxis()
    axes.set(xlabel=shown(label), xlim=(min(0, *(x for _, every in series for x in every)), None))
    axes.grid(alpha=0.15, axis="x")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=1, markerscale=0.5)
    return figure
