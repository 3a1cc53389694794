"""Train in several ways, and print of each its losses and the waits of its last step as JSON.

    python -m benchmarks.model.engine_runs '{"NAME": ["OVERRIDE", ...], ...}'

A wait is where the host waits for the device: PyTorch's warnings of them on a GPU, what would wait
for one elsewhere. Several runs are forked from one process, which pays for imports once; a run on a
GPU needs a process of its own.
"""

import functools
import json
import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ |= {"DEEPSPEED_LOG_LEVEL": "warning"}

from deepspeed.accelerator import get_accelerator
from hydra import compose, initialize_config_dir

from benchmarks.model.child_process import in_child
from benchmarks.model.host_waits import HostWaits, warned
from benchmarks.shared import read
from model.config import TrainConfig
from model.resilience.watchdog import Watchdog
from model.training import setup
from model.training.trainer import Trainer
from pipeline.cli import composing, conf_files
from pipeline.common.ports import free_port
from pipeline.storage.uploads import BackgroundUpload


def train(name: str, overrides: list[str]) -> None:
    """Train to the last step, and print the figures."""
    with initialize_config_dir(str(conf_files.CONF), version_base="1.3"):
        config = composing.validate(compose("train", overrides), TrainConfig)
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    plan, store = setup.plan_training(config, out, "f" * 64, "c" * 64, {}), BackgroundUpload()
    run = setup.restore(*setup.join_ranks(plan, lambda: None), store, lambda: None)
    trainer: Any = Trainer(run, Watchdog(0, 600.0, 600.0, None), store)
    found: dict[str, Any] = {"run": name, "began": trainer.state.step}
    update = trainer._update

    def last_counted(*given: Any) -> None:
        if trainer.state.step < trainer.config.steps - 1:
            update(*given)
        elif trainer.world.device.type == "cuda":
            places = warned(lambda: update(*given))
            found.update(waits=len(places), places=places)
        else:
            found.update(counted(trainer, lambda: update(*given)))

    trainer._update = last_counted
    trainer.run()
    rows = [row for row in read(out / "metrics.jsonl") if row["kind"] == "train"]
    found["losses"] = {row["step"]: row.get("loss") for row in rows}
    print(json.dumps(found), flush=True)


def counted(trainer: Any, step: Callable[[], None]) -> dict[str, Any]:
    """Count what would wait for a device, in all and in each micro-batch but the last."""
    waits, marks = HostWaits(), []
    get_accelerator().synchronize = lambda *_: waits.note("synchronize")
    hook = trainer.engine.module.register_forward_pre_hook(lambda *_: marks.append(waits.total))
    with waits:
        step()
    hook.remove()
    each = [after - before for before, after in pairwise(marks)]
    return {"waits": waits.total, "micro_batches": each, "places": waits.places}


def main() -> None:
    composing.register("train", TrainConfig)
    plan = json.loads(sys.argv[1])
    for name, overrides in plan.items():
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        if len(plan) == 1:
            train(name, overrides)
            return
        in_child(functools.partial(train, name, overrides))


if __name__ == "__main__":
    main()
