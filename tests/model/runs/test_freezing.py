"""Layers that stay as they were."""

import pytest
import torch

from model.training import initial_weights
from model.training.checkpoint import Tensors
from pipeline.records import checkpoint_folder
from tests.model.conftest import SMALL, train_many

FROZEN = ("encoder.embeddings.", "encoder.layers.0.")
MUON = ("optimizer=muon", "clip=null", "ema=0.5")
BF16 = ("precision=bf16", "deepspeed=zero1")


@pytest.fixture(scope="module")
def start(work, tmp_path_factory):
    """A model to start from."""
    out = tmp_path_factory.mktemp("start") / "train"
    train_many([(1, [*SMALL, f"workdir={work}", f"out={out}", "steps=2"])])
    return out


@pytest.mark.parametrize(("ranks", "words"), [(1, MUON), (2, BF16), (2, ("deepspeed=zero3",))])
def test_what_is_frozen_stays_to_the_bit_without_a_state_and_resumes(work, start, tmp_path, ranks, words):
    run = [*SMALL, *words, f"workdir={work}", f"start={start}", "freeze=1", "save_every=2"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    longer = "schedule=constant"
    said = train_many(
        [(ranks, [*run, longer, f"out={out}", f"steps={n}"]) for out, n in ((whole, 4), (parts, 2), (parts, 4))]
    )
    assert " of them frozen)" in said
    was = Tensors(checkpoint_folder.locate(start)[0])
    now, resumed = (Tensors(checkpoint_folder.locate(out)[0]) for out in (whole, parts))
    names = {name for _, name in was.moments}
    frozen = {name for name in names if name.startswith(FROZEN)}
    for name in names:
        assert torch.equal(was.weight(name), now.weight(name)) == (name in frozen), name
        assert torch.equal(now.weight(name), resumed.weight(name)), name
    assert {name for _, name in now.moments} == names - frozen
    if "ema=0.5" in words:
        average = initial_weights.read(whole, ema=True).state
        assert all(torch.equal(average[name], was.weight(name)) == (name in frozen) for name in names)


@pytest.mark.parametrize(("words", "cure"), [(["freeze=0"], "start=FOLDER"), (["freeze=3"], "2 layers")])
def test_only_layers_of_a_start_are_frozen(work, start, words, cure):
    begun = [] if words == ["freeze=0"] else [f"start={start}"]
    said = train_many([(1, [*SMALL, *words, *begun, f"workdir={work}", f"out={start}-2"])], code=2)
    assert words[0] in said
    assert cure in said
