"""What a training says of itself: before its first step, and as its result."""

from collections.abc import Iterator
from pathlib import Path

from model.config import Metrics
from model.tracking.metrics_file import read_metrics
from model.training import estimate, provenance, run_length
from model.training.schedule import Schedule
from model.training.setup import Plan, Run
from pipeline.console.formatting import WARNING, pluralize
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Result
from pipeline.records.metrics import TrainingSummary


def announcement(run: Run, words: run_length.WordCounter) -> Iterator[str]:
    """Yield the lines that a run begins with."""
    plan, state = run.plan, run.state
    config, held_out = plan.config, plan.shards[0]
    other = checkpoint_folder.other_settings(plan.folder) if not state.step else None
    if other is not None:
        yield (
            f"train: keeping the checkpoints of other settings ({other}); this training starts "
            "at step 0, as its first steps differ. To resume the other one, restore its "
            "settings; to train it for longer, keep its steps of warm-up, its share of "
            "masks and, with keep_best, what is evaluated, too; keep_best=true itself compares all "
            "evaluations from the first on, so leave it out to keep what is trained"
        )
    validation = config.data.validation
    if validation and (unread := held_out.held_out_folders() - set(map(Path, validation))):
        yield (
            f"warning: what prepare held out of {', '.join(sorted(map(str, unread)))} is not read; name the folder "
            "in data.validation too, or prepare with validation_share=0"
        )
    yield from (f"warning: {text}" for text in warnings_of(plan))
    milestones = map(checkpoint_folder.milestone_words, checkpoint_folder.steps(plan.folder).values())
    if passed := words.passed({mark for mark in milestones if mark is not None}):
        after = f"resumed after {state.words:,.0f} words, so without checkpoints at {format_marks(passed)}"
        yield f"warning: save_at_words: {after}"
    yield f"train: {line_of(run)}"
    ends = run_length.expected_steps(config, plan.longest) or plan.steps
    if ends < run_length.NEAR * plan.steps:
        yield (
            f"warning: ends after about {ends:,} of {plan.steps:,} steps, as `words` or `epochs` allow no more: "
            "its schedule will not end"
        )
    expected = estimate.estimate_training(config, plan.model, run.peak * 1e12, run.world.size, state.step)
    if expected.worth_saying:
        yield f"train: {expected}"


def warnings_of(plan: Plan) -> Iterator[str]:
    """Yield what makes a training doubtful whatever it reaches: of its shards, and a peak behind its end."""
    yield from plan.shards[0].warnings
    if (schedule := Schedule.of(plan.config, plan.steps)).warmup_steps > schedule.total:
        warmup = f"schedule.warmup_steps={schedule.warmup_steps:,}"
        yield f"{warmup}: the schedule ends after {schedule.total:,} steps, before its peak rate; set fewer"


def format_marks(marks: list[float]) -> str:
    """Return marks of `save_at_words` as text."""
    return ", ".join(f"{mark:,.0f}" for mark in marks)


def line_of(run: Run) -> str:
    """Say what is trained and how."""
    plan, engine, world = run.plan, run.engine, run.world
    config, step = plan.config, run.state.step
    done = f", resumed after step {step:,}" if step else ""
    count = sum(weight.numel() for weight in engine.frozen.values())
    frozen = f" ({count:,} of them frozen)" if count else ""
    # On a shared CPU the measured peak is too low, which inflates MFU.
    passes = plan.steps * config.batch_size / plan.loader.samples
    best = "(measured under current load)" if world.device.type == "cpu" else "peak"
    return (
        f"{plan.model.name}, {engine.parameters:,} parameters{frozen}, {world.size} x {world.device.type}, "
        f"{config.precision}, ZeRO stage {engine.stage}, {plan.steps:,} "
        f"steps of {config.batch_size} samples ({pluralize(engine.micro_batches, 'micro-batch', 'es')} per rank), "
        f"{Schedule.of(config, plan.steps).warmup_steps:,} of them warm-up, {passes:.1f} passes over the text, "
        f"{run.peak:.3g} TFLOP/s per device {best}{done}"
    )


def result_of(run: Run, validation: Metrics, guesses: tuple[float, float]) -> Result:
    """Return the run's metrics for the manifest; each accuracy has its baseline.

    `guesses` are those of `Evaluator.guesses`.
    """
    plan, state = run.plan, run.state
    rows = read_metrics(plan.out) if run.world.rank == 0 else []
    warnings = "".join(f"{WARNING}{text}" for text in (*warnings_of(plan), *provenance.overfitting(rows)))
    path = plan.folder / checkpoint_folder.name_of(state.best_step or state.step)
    summary = TrainingSummary(
        steps=state.step,
        planned_steps=plan.steps,
        samples=state.samples,
        samples_per_epoch=plan.loader.samples,
        tokens=state.tokens,
        words=state.words,
        validation=validation,
        most_frequent_accuracy=guesses[0],
        most_frequent_pair_accuracy=guesses[1] if "next_sentence_accuracy" in validation else None,
        world_size=run.world.size,
        device=run.world.device.type,
        checkpoint=str(path.relative_to(plan.out)),
    )
    return Result(summary=f"{summary.line}{warnings}", figures=summary.to_json(), earlier=state.seconds)
