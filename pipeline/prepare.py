"""`python -m pipeline.prepare +corpus=NAME`: a corpus -> Arrow shards of sentence pairs.

A Beam job of two phases (see `pipeline.beam.steps`):

1. read file ranges of the corpus -> documents -> sentences -> token ids, in buckets by hash;
2. take a bucket from all file ranges, drop duplicates, draw sentence pairs, write one shard.
"""

import contextlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pipeline.beam import steps
from pipeline.cli import entry_point
from pipeline.config import PrepareConfig
from pipeline.console import terminal
from pipeline.console.formatting import WARNING, pluralize
from pipeline.filtering import filters
from pipeline.preparation import estimate, outcome_checks, timings
from pipeline.preparation.documents import DocumentCounts
from pipeline.preparation.plan import PreparePlan, make_plan, plan_layout
from pipeline.preparation.progress import watch
from pipeline.records.manifest import Result
from pipeline.records.metrics import CorpusCounts
from pipeline.stages import stage
from pipeline.stages.fingerprints import pin


def collect(plan: PreparePlan) -> DocumentCounts:
    """Merge the counts of all tasks.

    Raises:
        OSError: the engine has lost a task.
        RuntimeError: it has lost or duplicated documents.
    """
    account = DocumentCounts(notes=Counter(plan.notes))
    if plan.short:
        account.name(filters.SHORT, *(f"{path}: {most} words at most" for path, most in plan.short.items()))
    for part in plan.accounts():
        account.merge(DocumentCounts.from_json(json.loads(part.read_bytes())))
    account.balance()
    account.left_out.trim()
    return account


def manifest_counts(plan: PreparePlan, account: DocumentCounts) -> CorpusCounts:
    """Return the counts as the manifest has them."""
    shards = {name: getattr(plan.info, name) for name in ("tokenizer", "vocab_size", "sequence_length")}
    return CorpusCounts.from_json(account.to_json() | shards | {"dropped": len(account.left_out)})


def count_resumed(work: PreparePlan) -> int:
    """Return how many reading tasks an earlier start has done; with `force` none."""
    if work.config.force:
        work.units.remove_all_but(set())
    there = work.units.names()
    kept = sum(name in there for name in work.unit_names) if there else 0
    if there:
        tasks = pluralize(len(work.tasks), "reading task")
        terminal.say(f"prepare: {kept:,} of {tasks} were done by an earlier start")
    return kept


@contextlib.contextmanager
def announce_resumable(work: PreparePlan) -> Iterator[None]:
    """Say what stays for the next start where the body fails."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            work.units.folder.rmdir()
        if work.units.folder.exists():
            terminal.say(f"prepare: what was read stays in {work.units.folder} for the next start")
        raise


def make(config: PrepareConfig, out: Path) -> Result:
    """Write the shards of a corpus into `out`.

    Raises:
        ConfigError: raised by `plan` or the engine.
        InputError: the corpus is unreadable, or gives no training or no validation instances.
    """
    work = make_plan(config, out)
    kept = count_resumed(work)
    # A worker of a killed run may have made it again: it writes no more, see `check_current`.
    work.scratch.mkdir(parents=True, exist_ok=True)
    if not kept and (expected := estimate.estimate_preparation(config, work.splits)):
        terminal.say(f"prepare: {expected}")
    began = time.monotonic()
    with announce_resumable(work):
        with watch(work):
            steps.run(work)
        if not kept:
            estimate.remember(config, work.splits, time.monotonic() - began)
        account = collect(work)
        counts = manifest_counts(work, account)
        used = timings.total(work.scratch.glob(f"*{timings.ENDING}"))
        shutil.rmtree(work.scratch)
        if not counts.documents["read"]:
            work.units.remove_all_but(set())
        outcome_checks.check_train(config, counts)
        outcome_checks.check_pairs(config, counts)
        outcome_checks.check_word_limit(config, counts)
        outcome_checks.check_held_out(config, counts, account.lowest)
    terminal.say(f"prepare: {timings.line(used)}")
    account.left_out.write(out, counts.documents["read"] - counts.written)
    counts.warnings.extend(outcome_checks.warnings(work, counts, account.lowest))
    left = work.units.remove_all_but(set(work.unit_names) if config.keep_reading else set())
    return Result(
        summary=WARNING.join([outcome_checks.made_line(config, counts, left), *counts.warnings]),
        figures=counts.to_json(),
        spent=used,
        sums={name: shard.sha256 for name, shard in counts.shards.items()},
    )


def execute(config: PrepareConfig) -> None:
    """Run the stage, or print its plan.

    Raises:
        UserError: raised by `make`, or `out` cannot be written.
    """
    if not config.dry_run:
        stage.run("prepare", config, make)
        return
    pin(config)
    splits, _, _, layout = plan_layout(config)
    for line in estimate.describe_plan(config, splits, layout):
        terminal.say(line)


def main() -> None:
    """Run the command."""
    entry_point.run("prepare", PrepareConfig, execute)


if __name__ == "__main__":
    main()
