"""ZeRO changes where things are kept, never what is learnt: the same curve at every stage."""

import json
import os
import sys
from pathlib import Path

import pytest

from pipeline.errors import Exit
from tests.model.conftest import SMALL, losses, rows, train_many
from tests.support import forked

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden" / "curves.json"
RATES = {"adamw": "1e-2", "lamb": "2e-2"}
STAGES = (0, 1, 2, 3)
RUNS = {(0, 1), *((stage, 2) for stage in STAGES)}  # (stage, processes)

held_out = {}  # the last held-out figures, likewise
outs = {}  # and the folders


def settings(work, out, optimizer, stage, *more):
    learn = [f"optimizer={optimizer}", f"optimizer.learning_rate={RATES[optimizer]}", f"deepspeed=zero{stage}"]
    return [f"workdir={work}", f"out={out}", *SMALL, "steps=40", *learn, *more]


@pytest.fixture(scope="module")
def curves(work, tmp_path_factory):
    """Losses by (optimizer, stage, processes): one process at stage 0, two at every stage."""
    folder = tmp_path_factory.mktemp("zero")
    names = {(o, s, p): folder / f"{o}-{s}-{p}" for o in RATES for s in STAGES for p in (1, 2)}
    names = {key: out for key, out in names.items() if key[1:] in RUNS}
    outs.update(names)
    train_many([(p, settings(work, out, o, s)) for (o, s, p), out in names.items()])
    held_out.update({name: rows(out, "validation")[-1] for name, out in names.items()})
    return {name: losses(out) for name, out in names.items()}


@pytest.mark.parametrize("optimizer", RATES)
@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_on_two_processes_gives_the_curve_of_one(curves, optimizer, stage):
    one = curves[optimizer, 0, 1]
    assert (len(one), curves[optimizer, stage, 2]) == (40, pytest.approx(one, abs=1e-4))
    assert held_out[optimizer, stage, 2] == pytest.approx(held_out[optimizer, 0, 1], abs=1e-4)


@pytest.mark.parametrize("stage", STAGES)
def test_the_curve_is_that_of_plain_pytorch(curves, stage, root, tmp_path):
    """DistributedDataParallel and PyTorch's AdamW, on the same batches."""
    script = root / "tests/model/workers/plain_ddp.py"
    words = [sys.executable, str(script), str(outs["adamw", stage, 2]), str(tmp_path / "losses")]
    forked.run(words, ranks=2, check=True, env=os.environ | {"PYTHONPATH": str(root)})
    assert curves["adamw", stage, 2] == pytest.approx(json.loads((tmp_path / "losses").read_text()), abs=1e-4)


@pytest.mark.parametrize("optimizer", RATES)
def test_the_curve_is_the_golden_one(curves, optimizer):
    golden = json.loads(GOLDEN.read_text())[optimizer]
    assert curves[optimizer, 0, 1] == pytest.approx(golden, abs=1e-4)
    assert golden[-1] < golden[0] - 0.2


def test_what_deepspeed_does_not_combine_is_one_line(work, tmp_path):
    offloaded = "+deepspeed.zero_optimization.offload_optimizer.device=cpu"
    done = forked.module("pipeline.train", *settings(work, tmp_path / "out", "adamw", 1, offloaded))
    assert done.returncode == Exit.USER
    assert [line.split(":")[:2] for line in done.stderr.splitlines()] == [["error", " deepspeed"]]
