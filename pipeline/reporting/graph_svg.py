"""The graph of a run as SVG: one column per depth, one arrow per input."""

from collections.abc import Mapping
from html import escape
from statistics import mean

from pipeline.console.formatting import duration
from pipeline.reporting.score_tables import Stages

ROW, GAP, HEIGHT, LETTER = 64, 48, 44, 7.6  # pixels; LETTER: upper bound of the average width

_HEAD = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><polygon points="0,1 8,4 0,7" fill="currentColor"/></marker></defs>'
)


def needs_of(stages: Stages) -> dict[str, list[str]]:
    """Return the stages that each stage read, by the fingerprints in its manifest."""
    makers = {stage.manifest.fingerprint: name for name, stage in stages.items()}
    return {
        name: [makers[digest] for digest in stage.manifest.inputs.values() if digest in makers]
        for name, stage in stages.items()
    }


def columns(needs: Mapping[str, list[str]]) -> dict[str, int]:
    """Return the column of each stage: after its inputs, and sources just before their readers."""
    # A stage that was made again has finished after its readers: the arrows alone give the order.
    column = dict.fromkeys(needs, 0)
    for _ in needs:
        for name, others in needs.items():
            column[name] = 1 + max((column[other] for other in others), default=-1)
    for name, others in needs.items():
        readers = [column[reader] for reader, read in needs.items() if name in read]
        if readers and not others:
            column[name] = min(readers) - 1
    return column


def draw(stages: Stages) -> str:
    """Return an `<svg>` element in the colours of the page."""
    needs = needs_of(stages)
    column = columns(needs)
    rows: dict[int, int] = {}
    row: dict[str, int] = {}
    for name in sorted(stages, key=lambda n: (column[n], not needs[n], _height(needs[n], row))):
        row[name] = rows.setdefault(column[name], 0)
        rows[column[name]] += 1
    wide = max(150, round(LETTER * max(map(len, stages))) + 20)
    places = {name: (4 + (wide + GAP) * column[name], 4 + ROW * row[name]) for name in stages}
    width = (wide + GAP) * (max(column.values()) + 1) - GAP + 8
    height = ROW * max(rows.values()) - ROW + HEIGHT + 8
    label = "; ".join(f"{name} reads {', '.join(read) or 'the corpus'}" for name, read in needs.items())
    parts = [
        f'<svg class="dag" viewBox="0 0 {width} {height}" width="{width}" '
        f'role="img" aria-label="{escape(label)}">{_HEAD}'
    ]
    for name, others in needs.items():
        x, y = places[name][0], places[name][1] + HEIGHT // 2
        for other in others:
            a, b = places[other][0] + wide, places[other][1] + HEIGHT // 2
            middle = x - GAP // 2
            parts.append(f'<path d="M{a} {b}H{x - GAP}C{middle} {b} {middle} {y} {x} {y}" marker-end="url(#arrow)"/>')
    for name, (x, y) in places.items():
        parts.append(f'<rect x="{x}" y="{y}" width="{wide}" height="{HEIGHT}" rx="8"/>')
        parts.append(f'<text x="{x + 10}" y="{y + 19}">{escape(name)}</text>')
        seconds = duration(stages[name].manifest.seconds)
        parts.append(f'<text class="soft" x="{x + 10}" y="{y + 36}">{seconds}</text>')
    return "".join([*parts, "</svg>"])


def _height(read: list[str], row: Mapping[str, int]) -> float:
    """Return the mean row of a stage's inputs; sorting by it reduces crossing arrows."""
    return mean(row.get(name, 0) for name in read) if read else 0.0
