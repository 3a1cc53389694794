"""The figures of a run: there, plausible, and adding up."""

import dataclasses
import json
import re
import shlex
import shutil
from collections import Counter

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from model.config import ModelConfig, TrainConfig
from model.resilience.nonfinite import clip_and_skip
from model.tracking.terminal import one_line
from model.training import cost, device_peak, estimate
from model.training.schedule import retention_of
from model.training.step_metrics import Meter, PhaseTimer, losses
from pipeline.common.schema import built
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Manifest
from pipeline.shards import open_folder
from tests.model.conftest import SMALL, rows, train_many
from tests.model.encoders.test_bert import VOCAB, ragged

FIGURES = shlex.split(
    "loss masked_lm_loss masked_lm_accuracy next_sentence_loss next_sentence_accuracy learning_rate gradient_norm "
    "tokens_per_second samples_per_second mfu memory_gib data_wait_share forward_share backward_share step_share "
    "samples tokens skipped_steps"
)


@pytest.fixture(scope="module")
def said_and_logged(work, tmp_path_factory):
    folder = tmp_path_factory.mktemp("meter")
    common = (f"workdir={work}", *SMALL, "clip=0.5", "log_every=4", "evaluate_every=2", "save_every=2")
    plan = [(2, [*common, f"out={folder / str(stage)}", f"deepspeed=zero{stage}"]) for stage in (0, 2)]
    return train_many(plan), {stage: rows(folder / str(stage)) for stage in (0, 2)}, folder


def test_every_row_has_every_figure(said_and_logged):
    """Shares of time add up to it although there are evaluations and saves in between."""
    for row in (row for found in said_and_logged[1].values() for row in found):
        assert set(FIGURES) <= set(row)
        assert json.dumps(row, allow_nan=False)
        assert row["mfu"] > 0  # of a peak that was measured under load
        assert 0.05 < row["memory_gib"] < 100
        shares = [row[f"{phase}_share"] for phase in ("data_wait", "forward", "backward", "step")]
        assert min(shares) >= 0
        assert 0.5 < sum(shares) <= 1


def test_what_a_dry_run_counts_is_what_followed(said_and_logged, work, tmp_path):
    """Of so small a model, what is not counted (biases, names of tensors) is a part of a checkpoint."""
    shutil.copytree(work / "prepare", tmp_path / "prepare")
    offsets = open_folder(tmp_path / "prepare", "train")[0].offsets
    lengths = dict(Counter(map(str, np.diff(offsets) + 3)))  # [CLS], [SEP], [SEP]
    made = Manifest.read(tmp_path / "prepare")
    dataclasses.replace(made, figures=made.figures | {"lengths": lengths}).write(tmp_path / "prepare")
    for stage, found in said_and_logged[1].items():
        out = said_and_logged[2] / str(stage)
        given = built(TrainConfig, Manifest.read(out).config)
        given = dataclasses.replace(given, data=dataclasses.replace(given.data, dir=str(tmp_path / "prepare")))
        model = ModelConfig(**checkpoint_folder.locate(out)[1].model)
        expected, each = estimate.estimate_training(given, model, 1e9), estimate.sample_cost(given, model, {})[0]
        assert expected.about.startswith("12 steps, ")
        assert found[-1]["samples"] == given.steps * given.batch_size
        assert found[-1]["tokens"] == pytest.approx(each * found[-1]["samples"], rel=0.05)
        kept = list(out.glob("checkpoints/*/step-*"))
        made_bytes = sum(path.stat().st_size for folder in kept for path in folder.iterdir()) / len(kept)
        most = retention_of(given, given.steps).count(given.steps)
        assert len(kept) < most
        assert made_bytes == pytest.approx(expected.disk / most, rel=0.2)


def test_the_gradients_norm_is_the_same_with_and_without_zero(said_and_logged):
    norms = [[row["gradient_norm"] for row in found] for found in said_and_logged[1].values()]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    assert max(norms[0]) > 0.5  # before clipping


def test_the_terminal_gets_one_line(said_and_logged):
    lines = [line for line in said_and_logged[0].splitlines() if line.startswith("step 8/12, ")]
    assert len(lines) == 2
    assert re.match(r"step 8/12, [\d.]+ s left: loss ", lines[0])
    for word in ("accuracy", "rate", "gradient", "tokens/s", "MFU", "GiB", "data"):
        assert word in lines[0]


def test_a_line_has_what_there_is():
    assert one_line({"loss": 1.23456, "mfu": 0.345}) == "loss 1.235, MFU 34.5%"


def test_laps_add_up_and_skipped_time_is_nobodys(monkeypatch):
    times = iter([0.0, 1.0, 3.0, 10.0, 14.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))
    clock = PhaseTimer(torch.device("cpu"))
    for phase in ("data", "forward"):
        clock.lap(phase)
    clock.lap(None)
    clock.lap("data")
    assert clock.seconds() == {"data": 5.0, "forward": 2.0, "backward": 0.0, "step": 0.0}


def test_pauses_are_no_time_of_training(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    meter = Meter(torch.device("cpu"))
    now[0] += 2.0
    with meter.paused():
        now[0] += 50.0
    now[0] += 3.0
    assert meter.seconds() == 5.0
    meter.restart()
    assert meter.seconds() == 0.0


def test_figures_are_means_of_what_was_added_and_rates_of_the_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("torch.distributed.all_reduce", lambda *_, **__: None)
    batch, draws = ragged([20, 31, 9]), torch.Generator().manual_seed(0)
    words, pairs = torch.randn(len(batch.masked_labels), VOCAB, generator=draws), torch.eye(3, 2)
    batch.masked_labels[:2] = words[:2].argmax(-1)
    batch.next_sentence_labels[:] = torch.tensor([0, 1, 1])
    meter = Meter(torch.device("cpu"), lambda batch: 8.0, peak=2e-12)
    for _ in range(2):
        meter.count(batch)
        meter.add(losses(words.clone(), pairs, batch)[2])
    now[0] = 16.0
    wanted = {"tokens": 120, "tokens_per_second": 120 / 16, "samples_per_second": 6 / 16, "mfu": 16 / 16 / 2}
    for name, logits, labels in (
        ("masked_lm", words, batch.masked_labels),
        ("next_sentence", pairs, batch.next_sentence_labels),
    ):
        wanted[f"{name}_loss"] = cross_entropy(logits, labels).item()
        wanted[f"{name}_accuracy"] = (logits.argmax(-1) == labels).double().mean().item()
    wanted["loss"] = wanted["masked_lm_loss"] + wanted["next_sentence_loss"]
    totals = meter.totals()
    found = meter.read(next_sentence=True)
    assert {key: found[key] for key in wanted} == pytest.approx(wanted)
    again = Meter(meter.device)  # of a start that resumes
    again.carry(totals)
    now[0] = 20.0
    again.add(losses(words.clone(), pairs, batch)[2])
    resumed = again.read(next_sentence=True)
    assert resumed["tokens"] == 60
    assert {key: resumed[key] for key in wanted if "_loss" in key} == pytest.approx(
        {key: wanted[key] for key in wanted if "_loss" in key}
    )


def test_a_measured_peak_is_more_than_a_step_reaches(monkeypatch):
    cpu = torch.device("cpu")
    assert 1e-3 < device_peak.tflops(cpu, "fp32") < 100
    assert device_peak.memory(cpu) > 0.05
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 3 * cost.GIB)
    assert device_peak.memory(torch.device("cuda")) == 3


def test_without_zero_gradients_are_clipped_to_the_norm_that_is_told():
    parameter = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    clip_and_skip(optimizer, 1.0)
    parameter.grad = torch.full((4,), 3.0)
    optimizer.step()
    assert optimizer._global_grad_norm == 6.0
    assert parameter.detach().norm() == pytest.approx(1.0, abs=1e-5)
