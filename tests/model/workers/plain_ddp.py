"""Train as a finished training did, with PyTorch alone: `plain_ddp.py OUT LOSSES`, a rank each.

Batches and initial weights are ours; gradients are summed by DistributedDataParallel, clipped and
applied by PyTorch's own AdamW, and no DeepSpeed is imported. Rank 0 writes the losses.
"""

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from model.config import ModelConfig, TrainConfig
from model.encoders.architectures import build_model
from model.loader.loader import Loader
from model.training.schedule import Schedule
from pipeline.common import counter_rng
from pipeline.common.schema import built
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Manifest
from pipeline.tokenization.wordpiece import WordPiece


def main(out, losses):
    made = Manifest.read(out)
    config = built(TrainConfig, made.config)
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(int(counter_rng.key(config.seed, "initialise") >> 1))
    model = build_model(ModelConfig(**checkpoint_folder.locate(out)[1].model))
    ddp, weights = DistributedDataParallel(model), list(model.parameters())
    groups = [
        {"params": [one for one in weights if one.ndim > 1], "weight_decay": config.optimizer.weight_decay},
        {"params": [one for one in weights if one.ndim == 1], "weight_decay": 0.0},
    ]
    settings = config.optimizer
    adamw = torch.optim.AdamW(groups, settings.learning_rate, tuple(settings.betas), settings.epsilon)
    loader = Loader(config.data, config.objective, WordPiece.load(config.data.vocab), config.seed, "train")
    curve = []
    for step in range(config.steps):
        for group in adamw.param_groups:
            group["lr"] = settings.learning_rate * Schedule.of(config, config.steps).lr_factor(step)
        batch = loader.batch(step * config.batch_size, config.batch_size, rank, size, config.micro_batch)
        total = torch.zeros(())
        for number, part in enumerate(batch.batches, 1):
            with nullcontext() if number == len(batch.batches) else ddp.no_sync():
                words, pairs = ddp(part)
                loss = functional.cross_entropy(words, part.masked_labels, reduction="sum") / batch.masked
                loss += functional.cross_entropy(pairs, part.next_sentence_labels, reduction="sum") / batch.sequences
                (size * loss).backward()
            total += loss.detach()
        dist.all_reduce(total)
        curve.append(float(total))
        torch.nn.utils.clip_grad_norm_(weights, config.clip)
        adamw.step()
        adamw.zero_grad()
    if rank == 0:
        losses.write_text(json.dumps(curve))
    dist.barrier()
    os._exit(0)  # a process group that is taken apart may wait for a rank that has left


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
