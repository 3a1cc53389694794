"""Train by flat gradients and by DeepSpeed's own hooks, and print what differs: JSON.

Weights are those of the optimizer, in fp32. Calls are those of Python functions in a backward pass.
"""

import cProfile
import json
import os
import pstats

os.environ |= {"DEEPSPEED_LOG_LEVEL": "warning", "DS_ACCELERATOR": "cpu"}

import torch
import torch.distributed as dist
from torch import nn

from model.config import OptimizerConfig, TrainConfig
from model.distributed import rank_card
from model.encoders.architectures import build_model
from model.training import deepspeed_config, deepspeed_patches
from model.training import engine as engines
from model.training.deepspeed_config import FP32
from model.training.step_metrics import losses
from tests.model.encoders.test_bert import ragged, small

BUCKET = 3000  # elements: some parameters are larger
CASES = {  # micro-batches of a step, and elements of a bucket
    "one micro-batch": (1, BUCKET),
    "three micro-batches": (3, BUCKET),
    "one bucket": (2, 10**8),
}


class WithUnused(nn.Module):
    """A model with a parameter that some micro-batches do not use, and one that none does."""

    def __init__(self):
        super().__init__()
        self.bert = build_model(small())
        self.sometimes = nn.Parameter(torch.ones(5, 7))
        self.never = nn.Parameter(torch.ones(11, 3))

    def forward(self, lengths, number):
        given = ragged(lengths)
        masked, pair, _ = losses(*self.bert(given), given)
        return masked + pair + (self.sometimes.sum() if number == 1 else 0.0)


def trained(case, flat, world):
    """Return the weights, norms and calls of four steps, one of which is not finite."""
    micro_batches, bucket = case
    zero = {"stage": 1, "reduce_bucket_size": bucket}
    config = TrainConfig(
        out="out",
        precision="bf16",
        batch_size=micro_batches * world.size,
        micro_batch=1,
        threads=1,
        optimizer=OptimizerConfig(name="adamw"),
        deepspeed={"zero_optimization": zero, **FP32},
    )
    room = engines
    deepspeed_config.ONLY_ON_GPUS = ()  # a bucket's size is for GPUs
    room.install_flat_gradients = deepspeed_patches.install_flat_gradients if flat else lambda *_: None
    torch.manual_seed(0)
    engine = engines.Engine(WithUnused(), config, world).deepspeed
    norms, calls = [], 0
    for step in range(4):
        for number in range(micro_batches):
            torch.manual_seed(step * 100 + number * 10 + world.rank)
            engine.set_gradient_accumulation_boundary(number == micro_batches - 1)
            loss = engine([20 + step, 31, 7 + world.rank], number)
            profile = cProfile.Profile()
            profile.runcall(engine.backward, loss * (float("nan") if step == 1 else 1.0))
            calls = pstats.Stats(profile).total_calls
        engine.step()
        norms.append(float(engine.get_global_grad_norm()))
    weights = [part.detach().clone() for part in engine.optimizer.single_partition_of_fp32_groups]
    return {"weights": weights, "norms": norms, "calls": calls}


def main():
    config = TrainConfig(out="out")
    world = engines.start_world(rank_card.describe(config, ""), 1, 600.0, 600.0)
    found = {}
    for name, case in CASES.items():
        ours, theirs = (trained(case, flat, world) for flat in (True, False))
        pairs = zip(ours["weights"], theirs["weights"], strict=True)
        equal = torch.tensor(all(torch.equal(one, other) for one, other in pairs)).int()
        dist.all_reduce(equal, op=dist.ReduceOp.MIN)
        found[name] = {
            "equal": bool(equal),
            "norms": [ours["norms"], theirs["norms"]],
            "calls": [ours["calls"], theirs["calls"]],
        }
    if world.rank == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
