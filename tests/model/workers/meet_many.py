"""Ranks in processes of their own that meet: imports are paid once, then ranks are forked.

Reads a JSON list of ranks, each with its `environment`, `settings`, changes of its `card`, `wait`
(seconds before it comes), `timeout` and `stay` (seconds after); prints what became of each.
"""

import dataclasses
import json
import multiprocessing
import os
import sys
import time

from model.distributed import rendezvous
from model.distributed.rank_card import describe
from pipeline.errors import Restart, UserError


@dataclasses.dataclass
class Settings:
    out: str = "out"
    steps: int = 10
    heartbeat: str = "/tmp/a"


def come(number, plan, results):
    os.environ |= plan.get("environment", {})
    time.sleep(plan.get("wait", 0))
    card = describe(Settings(**plan.get("settings", {})), "f" * 64)
    card = dataclasses.replace(card, **plan.get("card", {}))
    try:
        store, rank, _ = rendezvous.meet(card, plan.get("timeout", 60))
    except (UserError, Restart) as error:
        results.put((number, type(error).__name__, str(error), getattr(error, "key", None)))
        return
    store.add("world", 1)
    results.put((number, "met", f"rank {rank}", None))
    time.sleep(plan.get("stay", 1))


if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    plans = json.loads(sys.argv[1])
    ranks = [fork.Process(target=come, args=(n, plan, results)) for n, plan in enumerate(plans)]
    for process in ranks:
        process.start()
    print(json.dumps(sorted(results.get() for _ in ranks)))
    for process in ranks:
        process.join()
