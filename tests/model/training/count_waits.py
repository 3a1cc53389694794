"""Train and print how often the host would have waited for a GPU: one line of JSON for each run.

Takes a JSON plan, `{name: [override, ...]}`. Imports are paid once, then each run is forked.
Counted is the last of three steps: the first ones make what is made once.
"""

import json
import os
import sys
import traceback
from itertools import pairwise
from pathlib import Path

os.environ |= {"DEEPSPEED_LOG_LEVEL": "warning", "DS_ACCELERATOR": "cpu"}

from deepspeed.accelerator import get_accelerator
from hydra import compose, initialize_config_dir

from benchmarks.host_waits import HostWaits
from model.config import TrainConfig
from model.resilience.watchdog import Watchdog
from model.training.trainer import Trainer
from pipeline.cli import conf_files, entry_point
from pipeline.orchestration.graph import free_port

STEPS = 3


def count(name: str, overrides: list[str]) -> None:
    with initialize_config_dir(str(conf_files.CONF), version_base="1.3"):
        config = entry_point.validate(compose("train", overrides), TrainConfig)
    out = Path(config.out)
    out.mkdir(parents=True)
    trainer = Trainer(config, out, "f" * 64, Watchdog(0, 600.0, 600.0, None))
    waits = HostWaits()
    get_accelerator().synchronize = lambda *_: waits.note("synchronize")
    marks: list[int] = []
    trainer.engine.module.register_forward_pre_hook(lambda *_: marks.append(waits.total))
    meter = trainer._meter()
    trainer.engine.train()
    for _, (batch, parts) in zip(range(STEPS), trainer._global_batches(), strict=False):
        marks.clear()
        waits.restart()
        with waits:
            trainer._update(batch, parts, meter)
        trainer.step += 1
        trainer.samples += batch.sequences
    each = [after - before for before, after in pairwise(marks)]  # all but the last
    found = {"step": waits.total, "micro_batches": each, "counts": waits.counts}
    print(json.dumps({"run": name, **found, "places": waits.places}), flush=True)


if __name__ == "__main__":
    entry_point.register("train", TrainConfig)
    for name, overrides in json.loads(sys.argv[1]).items():
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        child = os.fork()
        if child == 0:
            try:
                count(name, overrides)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(1)
