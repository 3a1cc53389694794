"""Checkpoints hold any number of named moments per parameter, at every ZeRO stage."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from model.optim.build import ADAM
from model.training import checkpoint
from model.training.engine import require_moments
from pipeline.common.ports import free_port
from pipeline.errors import InputError
from tests.model.conftest import printed
from tests.support import finished, forked
from tests.support.refusals import refused

PAIRS = ("0,0", "0,2", "2,1", "1,3", "3,0")


@pytest.mark.slow
def test_an_optimizer_of_one_moment_resumes_at_any_stage(root, tmp_path):
    script = str(Path(__file__).parents[1] / "workers/one_moment.py")
    environment = {**os.environ, "PYTHONPATH": str(root)}
    runs = printed(forked.fresh(script, free_port(), tmp_path, *PAIRS, env=environment))
    assert len(runs) == len(PAIRS)
    for pair, run in zip(PAIRS, runs, strict=True):
        for name, values in runs[0].items():
            np.testing.assert_allclose(run[name], values, atol=1e-6, err_msg=f"{pair} {name}")


def test_the_moments_of_another_optimizer_are_refused(tmp_path):
    path = checkpoint.write(tmp_path, finished.state(1), {"w": torch.zeros(2)}, {"velocity.w": torch.zeros(2)})
    with refused(InputError, key="optimizer", path=str(path)):
        require_moments({"w": ADAM}, checkpoint.Tensors(path))
