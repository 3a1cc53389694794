"""Runs, and their stages, as their command line gives them, without running anything."""

from pipeline.cli import composing
from pipeline.config import RunConfig
from pipeline.orchestration import compose_run, graph
from pipeline.stages.registry import KNOWN


def configured(stage, *words):
    """The configuration of a stage of a command line as typed."""
    return composing.compose_config(stage, KNOWN[stage].schema, list(words), asked=False)


def composed(*words):
    """The configuration of a run, with its stages, of a command line as typed."""
    config = compose_run.parse_run_argv("run", RunConfig, list(words), asked=False)
    assert isinstance(config, RunConfig)
    return config


def planned(*words):
    """The stages of a run by name."""
    return {node.name: node for node in graph.plan_graph(composed(*words))}
