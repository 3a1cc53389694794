"""Be some ranks of 64, one after the other, and print what each has: a line of JSON per case.

PyTorch's fake process group answers every collective at once, without another rank: what a rank
sends is what it gets.
"""

import functools
import json
import os

os.environ |= {"DEEPSPEED_LOG_LEVEL": "warning", "DS_ACCELERATOR": "cpu"}

import deepspeed
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.model.child_process import in_child
from model.config import ModelConfig, OptimizerConfig, TrainConfig
from model.distributed.world import World
from model.encoders.architectures import build_model
from model.optim.zero_layout import layouts
from model.training.deepspeed_config import FP32
from model.training.engine import Engine
from model.training.step_metrics import losses
from tests.model.encoders.test_bert import VOCAB, ragged

WORLD = 64
BATCH, MICRO_BATCH = 65_536, 64  # of recipe=lamb, at a micro-batch that `auto` could choose
# (stage, rank); at stage 3 DeepSpeed compares ranks by what they send.
CASES = [(1, 5), (1, 63), (2, 63), (3, 0)]
SIZE = ModelConfig(name="x", layers=3, hidden=96, heads=2, feed_forward=384, positions=64, vocab_size=VOCAB)


def looked_at(stage, rank):
    """Return what a rank has before the step of its last micro-batch, and after it."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(WORLD)}
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=WORLD)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled
    deepspeed.init_distributed(verbose=False)
    typed = {"zero_optimization": {"stage": stage}, **FP32}
    lamb = {"optimizer": OptimizerConfig(name="lamb"), "deepspeed": typed, "precision": "bf16", "clip": None}
    config = TrainConfig(out="out", batch_size=BATCH, micro_batch=MICRO_BATCH, threads=1, **lamb)
    torch.manual_seed(0)
    module = build_model(SIZE)
    weights = {name: p.detach().bfloat16().float() for name, p in module.named_parameters()}
    world = World(rank, WORLD, torch.device("cpu"))
    engine = Engine(module, config, world).deepspeed
    found = {
        "case": [stage, rank],
        "parameters": sum(w.numel() for w in weights.values()),
        "batch": engine.train_batch_size(),
        "micro_batches": engine.gradient_accumulation_steps(),
    }
    if stage < 3:
        found |= trained(engine, weights)
    else:
        found["owned"] = sum(p.numel() for p in engine.optimizer.fp32_partitioned_groups_flat)
    return found


def trained(engine, weights):
    """Compute one pass and an update; return bytes and whether this rank's parts are right."""
    wrapper, (micro_batch, names) = engine.optimizer, (ragged([20, 31]), list(weights))
    parameters = dict(engine.module.named_parameters())
    gradients = {}
    for name, parameter in parameters.items():  # before the engine's hooks free them
        parameter.register_hook(lambda g, name=name: gradients.__setitem__(name, g.clone()))
    engine.set_gradient_accumulation_boundary(True)
    masked, pair, _ = losses(*engine(micro_batch), micro_batch)
    engine.backward(masked + pair)
    pieces, equal = 0, {"weights": True, "gradients": True}
    for group, (flat, layout) in enumerate(layouts(engine).items()):
        mine = [
            next(name for name in names if parameters[name] is parameter) for parameter in wrapper.bit16_groups[group]
        ]
        part = torch.cat([x.flatten() for x in wrapper.averaged_gradients[group]])
        for piece in layout.pieces:
            name, inside = mine[piece.parameter], slice(piece.start, piece.start + piece.size)
            there = slice(piece.offset, piece.offset + piece.size)
            equal["weights"] &= torch.equal(flat[inside], weights[name].flatten()[there])
            wanted = gradients[name].float().flatten()[there] / WORLD
            equal["gradients"] &= torch.equal(part[inside].float(), wanted)
            pieces += piece.size
    sums = {x.untyped_storage() for group in wrapper.averaged_gradients.values() for x in group}
    engine.step()
    states = [x for state in engine.optimizer.state.values() for x in state.values()]
    return {
        "pieces": pieces,
        "equal": equal,
        "bytes": {
            "weights": sum(flat.nbytes for flat in wrapper.bit16_groups_flat),
            "sums": sum({x.data_ptr(): x.nbytes() for x in sums}.values()),
            "optimizer": sum(p.nbytes for p in wrapper.single_partition_of_fp32_groups) + sum(x.nbytes for x in states),
        },
    }


def show(stage, rank):
    """Print what a rank has."""
    print(json.dumps(looked_at(stage, rank)), flush=True)


def main():
    for case in CASES:
        in_child(functools.partial(show, *case))


if __name__ == "__main__":
    main()
