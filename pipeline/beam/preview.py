"""What `prepare dry_run=true` prints: the plan of a job, and what it will cost, as an estimate.

The layout is computed as the job computes it. Time is that of a second of reading on this machine,
or of the last run in this folder. The other constants were measured; docs/scale.md says how.
"""

from pipeline.beam import estimate
from pipeline.beam.exchange import Exchange
from pipeline.common.estimate import rounded, size
from pipeline.config import PrepareConfig
from pipeline.readers import FileRange

EXCHANGED = 2.0  # bytes per token between the phases, compressed
PART = 2300  # bytes of a part without documents
RATE = 6e6  # bytes of text per second and core, where nothing can be measured
WORKERS = (1, 8, 64, 512)


def lines(config: PrepareConfig, splits: list[FileRange], layout: Exchange) -> list[str]:
    """Return the plan in lines, one per part."""
    estimate.calibrate(config, splits[0])  # loads what only the first document needs
    whole, text, rate = estimate.measured(config, splits)
    tokens = text / estimate.TEXT_OF_TOKEN
    seconds = whole / rate if rate else text / RATE
    engine = config.runner.by_engine
    parts = layout.portions * layout.ranges + layout.merges * layout.groups * layout.writes
    moved = EXCHANGED * tokens * (1 + layout.merges) + PART * parts
    made = estimate.BYTES_OF_TOKEN * tokens * config.duplicates
    tasks = max(layout.reads, layout.writes)
    times = "; ".join(
        f"{count:,}: {rounded(estimate.START + seconds / count)}" for count in WORKERS if count == 1 or count <= tasks
    )
    carrier = "the engine" if engine else "files in out"
    step = f", merged in {layout.groups * layout.ranges:,} tasks" if layout.merges else ""
    kept = made + (0 if engine else moved)
    rows = {
        "corpus": f"{size(whole)} in files, {size(text)} of text, {tokens / 1e6:,.1f} M tokens",
        "splits": f"{len(splits):,}, read in {layout.reads:,} tasks",
        "shards": f"{layout.buckets:,}, written in {layout.writes:,} tasks",
        "exchange": f"{size(moved)} in {parts:,} parts of {in_kilobytes(moved / parts)} through {carrier}{step}",
        "time": f"by workers of one core, if a start takes no longer than here: {times}",
        "disk": f"{size(kept)} in out, of which {size(made)} are shards"
        + (f"; the engine's own store: {size(moved)} over all workers" if engine else ""),
        "memory": f"{size(estimate.memory(config, splits, text))} per worker",
    }
    return ["prepare: estimate, nothing is written", *(f"  {k:<9} {v}" for k, v in rows.items())]


def in_kilobytes(count: float) -> str:
    """Return bytes as `120 KB`."""
    return f"{max(1, round(count / 1e3)):,} KB"
