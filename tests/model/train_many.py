"""Real training processes for `conftest.train_many`: imports are paid once, then ranks are forked.

Reads a JSON plan, `[[processes, [override, ...]], ...]`, and does its runs in turn.
"""

import json
import multiprocessing
import os
import sys
import traceback
from importlib import import_module

os.environ["DEEPSPEED_LOG_LEVEL"] = "warning"

from hydra import compose, initialize_config_dir

from model import train
from model.config import TrainConfig
from pipeline.cli import conf_files, entry_point
from pipeline.common.errors import UserError
from pipeline.orchestration.graph import free_port

import_module("deepspeed.runtime.zero.muon.original_muon")  # as the first optimizer does: seconds
entry_point.register("train", TrainConfig)


def rank(number: int, overrides: list[str]) -> None:
    os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number)}
    try:
        with initialize_config_dir(str(conf_files.CONF), version_base="1.3"):
            config = entry_point.validate(compose("train", overrides), TrainConfig)
        train.train(config)
    except UserError as error:
        print(f"error: {error}", flush=True)
        os._exit(int(error.code))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


for processes, overrides in json.loads(sys.argv[1]):
    os.environ |= {
        "WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
    }  # fmt: skip
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=rank, args=(n, overrides)) for n in range(processes)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    worst = max(process.exitcode or 0 for process in ranks)
    if worst:
        sys.exit(worst)
