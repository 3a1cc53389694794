"""What a stage advises, in the form that a run takes."""

import pytest

from pipeline.errors import BY_FORCE, ConfigError, Diverged, InputError, UserError, named
from pipeline.orchestration import compose_run, stage_keys

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
    assert stage_keys.owner(name, STAGES) == stage


@pytest.mark.parametrize(
    ("stage", "error", "shown"),
    [
        ("train-512", ConfigError("too few", "steps", 1), "train-512.steps=1: too few"),
        (
            "train",
            ConfigError(f"goes with bf16; set {named('precision')}=bf16", "compute", "compile"),
            "train.compute=compile: goes with bf16; set train.precision=bf16",
        ),
        ("train", ConfigError("is not a folder", "data.cache", 1), "train.data.cache=1: is not a folder"),
        # Keys of a run, paths and addresses.
        ("prepare", InputError("no such file", "corpus.path", "a/size=3"), "corpus.path=a/size=3: no such file"),
        ("train", InputError("not found", path="https://a.b/c?steps=1"), "https://a.b/c?steps=1: not found"),
        ("preflight", ConfigError("bad", "steps"), "steps: bad"),
    ],
)
def test_keys_of_a_stage_get_its_name(stage: str, error: UserError, shown: str) -> None:
    told = stage_keys.explain_in_run(error.but(where=f"stage {stage}"), STAGES, OUTS, False)
    assert (type(told), str(told)) == (type(error), f"stage {stage}: {shown}")


@pytest.mark.parametrize(
    ("stage", "path", "forced"),
    [
        ("train", "s3://wiki/run/prepare", "prepare"),
        ("train-512", "s3://wiki/run/prepare-512/a.arrow", "prepare-512"),
        ("train", "s3://wiki/run/train/checkpoints/1", "train"),
        ("evaluate-rte", None, "evaluate-rte"),
    ],
)
def test_the_stage_whose_folder_is_wrong_is_forced(stage: str, path: str | None, forced: str) -> None:
    error = InputError(f"make it again {BY_FORCE}", path=path, where=f"stage {stage}")
    assert str(error).endswith("make it again with force=true")
    assert str(stage_keys.explain_in_run(error, STAGES, OUTS, False)).endswith(f"make it again with --force {forced}")
    assert compose_run.expand(["--force", forced]) == [f"force=[{forced}]"]
    assert str(stage_keys.explain_in_run(error, STAGES, OUTS, True)).endswith(f"by deleting {OUTS[forced]}")


def test_an_error_of_a_plan_has_the_keys_of_a_run() -> None:
    error = ConfigError(f"no such key; did you mean {named('size')}?", "sizee")
    assert (
        str(stage_keys.explain_in_plan(error, "vocab"))
        == "stage vocab: vocab.sizee: no such key; did you mean vocab.size?"
    )
    error = ConfigError("no such file", "corpus.path", "x")
    assert str(stage_keys.explain_in_plan(error, "vocab")) == "stage vocab: corpus.path=x: no such file"


def test_an_error_keeps_its_type_and_fields() -> None:
    error = stage_keys.explain_in_run(Diverged("a", path="log", where="stage train"), STAGES, OUTS, False)
    assert (type(error), error.path) == (Diverged, "log")
