"""A step waits for the device once: counted on the CPU, at every stage and for every optimizer."""

import json
import os

import pytest

from tests.model.conftest import SMALL, printed
from tests.support import forked

# All trainings are one fixture: a hundred seconds alone, three times as long on a busy machine.
pytestmark = pytest.mark.timeout(900)
HALF = [
    "precision=bf16",
    "+deepspeed.data_types.grad_accum_dtype=fp32",
    "+deepspeed.communication_data_type=fp32",
]  # as on a GPU
RUNS = {
    "zero0": ["deepspeed=zero0"],
    "zero1": ["deepspeed=zero1", *HALF],
    "zero2": ["deepspeed=zero2", *HALF],
    "zero3": ["deepspeed=zero3", "precision=bf16"],
    "lamb": ["deepspeed=zero1", "optimizer=lamb"],
    "stable_adamw": ["deepspeed=zero2", "optimizer=stable_adamw"],
    "without clipping": ["deepspeed=zero1", "precision=bf16", "clip=null"],
}


@pytest.fixture(scope="module")
def counted(work, tmp_path_factory):
    folder = tmp_path_factory.mktemp("waits")
    plan = {
        name: [f"workdir={work}", f"out={folder / name.replace(' ', '-')}", *SMALL, *more, "steps=3"]
        for name, more in RUNS.items()
    }
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    done = forked.fresh("-m", "benchmarks.model.engine_runs", json.dumps(plan), env=environment)
    return {row["run"]: row for row in printed(done)}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_step_waits_once_and_a_micro_batch_never(counted, name):
    row = counted[name]
    assert row["micro_batches"] == [0, 0], row["places"]  # all but the last of three
    assert row["waits"] == 1, row["places"]
