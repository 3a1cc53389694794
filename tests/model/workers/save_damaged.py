"""Gather weights that the model does not have, or that are not finite: a line of JSON per rank."""

import json
import os
from collections import defaultdict

os.environ |= {"DEEPSPEED_LOG_LEVEL": "warning", "DS_ACCELERATOR": "cpu"}

import torch
import torch.distributed as dist

from model.config import OptimizerConfig, TrainConfig, deepspeed_keys
from model.distributed import rank_card
from model.encoders.architectures import build_model
from model.training import engine as engines
from model.training.step_metrics import losses
from tests.model.encoders.test_bert import ragged, small

MIXED = {"round_robin_gradients": True}


def engine_after_a_step(zero, precision, world):
    adam = {"optimizer": OptimizerConfig(name="adamw"), "deepspeed": {"zero_optimization": zero}}
    config = TrainConfig(out="out", precision=precision, batch_size=world.size, micro_batch=1, threads=1, **adam)
    torch.manual_seed(0)
    engine = engines.Engine(build_model(small()), config, world)
    given = ragged([20, 31])
    masked, pair, _ = losses(*engine(given), given)
    engine.backward(masked + pair)
    engine.step()
    return engine


def damage(engine, world, weight):
    """Change a weight of the last rank."""
    if world.rank == world.size - 1:
        parameter = next(engine.module.parameters())
        getattr(parameter, "ds_tensor", parameter).data.view(-1)[0] = weight


def ending(engine):
    """Return what gathering raises, if anything."""
    try:
        engine.state_dict()
    except (RuntimeError, FloatingPointError) as error:
        return type(error).__name__
    return ""


def main():
    card = rank_card.describe(TrainConfig(out="out"), "")
    world = engines.start_world(card, 1, 600.0, 600.0)
    deepspeed_keys.keys()["fixed"].pop("zero_optimization.round_robin_gradients")
    deepspeed_keys.keys()["harmless"].append("zero_optimization.round_robin_gradients")
    found = defaultdict(set)
    for stage, kind in ((0, "fp32"), (1, "fp32"), (2, "bf16"), (3, "bf16")):
        engine = engine_after_a_step({"stage": stage}, kind, world)
        found["plain"].add(ending(engine))
        damage(engine, world, 0.125 if stage else float("inf"))
        found["damaged" if stage else "infinite"].add(ending(engine))
    for stage in (1, 2):
        found["mixed"].add(ending(engine_after_a_step({"stage": stage, **MIXED}, "fp32", world)))
    said = json.dumps({name: sorted(endings) for name, endings in found.items()})
    print(f"{said}\n", end="", flush=True)  # at once: the other rank prints too
    dist.barrier()


if __name__ == "__main__":
    main()
