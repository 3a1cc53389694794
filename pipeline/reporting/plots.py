"""Plots as SVG text for a light or dark page: `INK` becomes `currentColor`."""

import io
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipeline.common.redact import one_line

INK = "#123456"  # placeholder for the page's text colour
SIZE = (4.6, 2.7)  # inches
COLOURS = ("#3b82f6", "#7c6fb0", "#5b9aa0", "#8f8f8f")
BASELINES = ("#9aa3ad", "#c3c9cf")  # quiet: what a score is compared with

mpl.rcParams |= {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,
}

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
        axes.plot(x, y, label=shown(label), color=COLOURS[place % len(COLOURS)], linewidth=1.4)
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


def bars(names: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], label: str) -> str:
    """Draw horizontal bars, a group per name; the first series is ours, others are baselines."""
    figure = Figure(figsize=(SIZE[0], 1.5 + 0.55 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    height = 0.8 / len(series)
    for number, (title, values) in enumerate(series):
        places = [index + number * height for index in range(len(names))]
        colour = BASELINES[min(number, len(BASELINES)) - 1] if number else COLOURS[0]
        axes.barh(places, values, height, label=shown(title), color=colour)
    axes.set_yticks([index + 0.4 - height / 2 for index in range(len(names))], [shown(name) for name in names])
    axes.invert_yaxis()
    axes.set(xlabel=shown(label), xlim=(0, None))
    axes.grid(alpha=0.15, axis="x")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=1)
    return svg(figure)
