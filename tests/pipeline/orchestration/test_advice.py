"""What a stage advises, in the form that a run takes."""

import pytest

from pipeline.common.errors import ConfigError, Diverged, UserError
from pipeline.orchestration import advice, run_arguments

STAGES = ["prepare", "prepare-512", "train", "train-512", "evaluate", "evaluate-curve"]
OUTS = {name: f"s3://wiki/run/{name}" for name in [*STAGES, "evaluate-rte"]}


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("train", "train"),
        ("train-512-seed1", "train-512"),
        ("evaluate-rte", "evaluate"),
        ("evaluate-curve-blimp", "evaluate-curve"),
        ("preflight", "preflight"),
    ],
)
def test_a_node_belongs_to_a_stage_of_the_recipe(name: str, stage: str) -> None:
    assert advice.owner(name, STAGES) == stage


@pytest.mark.parametrize(
    ("stage", "said", "shown"),
    [
        ("train-512", "steps=1.5: must be a whole number", "train-512.steps=1.5: must be a whole number"),
        (
            "prepare",
            "runner.options.flink_master: is required; add runner.options.flink_master=V",
            "prepare.runner.options.flink_master: is required; add prepare.runner.options.flink_master=V",
        ),
        (
            "prepare",
            "runner=sprk: no such runner; did you mean spark?",
            "prepare.runner=sprk: no such runner; did you mean spark?",
        ),
        ("vocab", "sizee: no such key; did you mean size?", "vocab.sizee: no such key; did you mean vocab.size?"),
        (
            "train",
            "nonsense: no such key; --help lists all keys",
            "train.nonsense: no such key; python -m pipeline.train --help lists all keys",
        ),
        ("train", "data.cache=1: is not a folder", "train.data.cache=1: is not a folder"),
        # Keys of a run, paths and addresses.
        ("vocab", "corpus.path=a/size=3: no such file", "corpus.path=a/size=3: no such file"),
        ("train", "https://a.b/c?steps=1: not found", "https://a.b/c?steps=1: not found"),
        ("preflight", "node-b: steps=3", "node-b: steps=3"),
    ],
)
def test_keys_of_a_stage_get_its_name(stage: str, said: str, shown: str) -> None:
    assert advice.with_prefix(said, stage) == shown


@pytest.mark.parametrize(
    ("stage", "said", "forced"),
    [
        ("train", "the shards in s3://wiki/run/prepare are old; make them with", "prepare"),
        ("train-512", "s3://wiki/run/prepare-512/a.arrow: damaged; make it again with", "prepare-512"),
        ("train", "s3://wiki/run/train/checkpoints/1: other shards than in s3://wiki/run/prepare;", "train"),
        ("evaluate-rte", "no folder here; make it again with", "evaluate-rte"),
    ],
)
def test_the_stage_whose_folder_is_wrong_is_forced(stage: str, said: str, forced: str) -> None:
    error = advice.in_run(UserError(f"stage {stage}: {said} force=true"), STAGES, OUTS, False)
    assert str(error) == f"stage {stage}: {said} --force {forced}"
    assert run_arguments.expand(["--force", forced]) == [f"force=[{forced}]"]
    error = advice.in_run(UserError(f"stage {stage}: {said} force=true"), STAGES, OUTS, True)
    assert str(error).endswith(f"by deleting {OUTS[forced]}")


def test_an_error_keeps_its_type_and_fields() -> None:
    error = advice.in_run(Diverged("stage train: clip=1: a", path="log"), STAGES, OUTS, False)
    assert (type(error), error.path) == (Diverged, "log")
    assert "train.clip=1" in str(error)
    other = ConfigError("workdir=x: steps=3", "workdir")
    assert advice.in_run(other, STAGES, OUTS, False) is other
