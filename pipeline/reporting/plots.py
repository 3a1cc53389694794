"""Plots as SVG text for a light or dark page: `INK` becomes `currentColor`."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipeline.common.tables import read_table
from pipeline.console.redact import one_line

TABLE = read_table(__file__, "plots.yaml")
INK = TABLE["style"]["text.color"]  # placeholder for the page's text colour
SIZE = (4.6, 2.7)  # inches
COLOURS = ("#3b82f6", "#7c6fb0", "#5b9aa0", "#8f8f8f")
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


def shown(name: str) -> str:
    """Return a name as a label; a legend leaves out those that begin with `_`."""
    return f"{' ' * name.startswith('_')}{one_line(name)}"


def lines(curves: Sequence[Curve], x_label: str, y_label: str) -> str:
    """Plot curves over a common axis."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    for place, (label, x, y) in enumerate(curves):
        style = "o" if label == "validation" else "-"
        axes.plot(x, y, style, label=shown(label), color=COLOURS[place % len(COLOURS)], linewidth=1.4, markersize=4)
    axes.set(xlabel=shown(x_label), ylabel=shown(y_label))
    if len(curves) > 1:
        axes.legend()
    # Few ticks, a thin grid and readable numbers: 30,000; 0.001.
    axes.grid(alpha=0.15)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(number)
    return svg(figure)


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


def bars(names: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], label: str, whiskers: Any = None) -> str:
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
    return svg(figure)
