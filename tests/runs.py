"""Runs as their command line gives them, without running anything."""

from pipeline.cli import composing
from pipeline.config import RunConfig
from pipeline.orchestration import graph, run_arguments
from pipeline.orchestration.run_document import StageRecord


def composed(*words: str) -> tuple[RunConfig, list[str]]:
    """The configuration of a run, and the overrides for its graph, of a command line as typed."""
    expanded = run_arguments.expand(list(words))
    config = composing.compose("run", RunConfig, run_arguments.of_run(expanded))
    assert config is not None
    return composing.validate(config, RunConfig), run_arguments.overrides_of(expanded)


def planned(*words: str) -> dict[str, StageRecord]:
    """The stages of a run by name."""
    return {node.name: node for node in graph.plan(*composed(*words))}
