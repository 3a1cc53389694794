"""With a key, W&B's service gets what training logs; a resumed training continues its run."""

import json

import pytest

from model.tracking.metrics_file import RUN_ID
from tests.support import forked
from tests.support.servers.wandb_server import KEY, WandbServer, environment

pytestmark = pytest.mark.slow

TRAIN = """
import json, sys
from pathlib import Path
from model.config import TrackingConfig
from model.tracking.tracker import Tracker
out, start, steps = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
tracker = Tracker(TrackingConfig(name="wandb", mode="online"), out, 0, start, 10, {"seed": 7})
for step in steps:
    tracker.log_metrics("train", step, {"loss": 8 / step})
tracker.alert("Training stopped", f"after step {steps[-1]}")
tracker.close()
"""


@pytest.fixture
def server():
    """W&B's interface on loopback."""
    made = WandbServer()
    yield made
    made.stop()


def train(server, out, start, steps):
    """Log some steps in a process of their own, as one start of a training does."""
    online = environment(out, WANDB_BASE_URL=server.url, WANDB_API_KEY=KEY)
    done = forked.fresh("-c", TRAIN, out, start, json.dumps(steps), env=online)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stdout


def test_a_resumed_training_continues_its_run(tmp_path, server):
    out = tmp_path / "wiki" / "train"
    out.mkdir(parents=True)
    train(server, out, 0, [1, 2, 3, 4])
    train(server, out, 3, [4, 5, 6])  # saved at step 3, killed after step 4
    ((name, run),) = server.runs.items()
    assert name == (out / RUN_ID).read_text()
    assert (run["groupName"], run["jobType"]) == ("wiki", "train")
    assert json.loads(run["config"])["seed"]["value"] == 7
    rows = [(row["_step"], row["train/loss"]) for row in server.history(name)]
    assert rows == [(step, 8 / step) for step in range(1, 7)], "each step once"
    assert server.summary(name)["train/loss"] == 8 / 6
    alerts = [one["text"] for one in server.asked_for("NotifyScriptableRunAlert")]
    assert alerts == ["after step 4", "after step 6"]
