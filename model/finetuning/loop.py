"""Fine-tuning of the encoder with a small head, as in Devlin et al. 2019, section 4.

Shapes: N samples, B samples in a batch, S sequences, T tokens in it, C outputs.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from model.config import ModelConfig, ScheduleConfig, Weights
from model.encoders.architectures import architecture_of
from model.encoders.batch import Packed
from model.encoders.encoder import prepare_for
from model.finetuning.features import Samples, batch_count, epoch_batches
from model.finetuning.heads import BertWithHead, HeadConfig, loss_of
from model.huggingface.names import ANSWER, CLASS, TAG
from model.loader.device_copy import send
from model.optim.build import parameter_groups
from model.training.schedule import Schedule
from pipeline.common import counter_rng
from pipeline.common.counter_rng import Ints
from pipeline.common.ranges import bounds_of, ranges
from pipeline.errors import Diverged

CLIP = 1.0  # largest gradient norm
EVALUATION_BATCH = 128


@dataclass(frozen=True, kw_only=True)
class FineTuningConfig:
    """Hyperparameters of fine-tuning."""

    batch_size: int
    learning_rate: float
    epochs: int
    seed: int
    warmup_share: float
    weight_decay: float
    precision: str = "fp32"  # or bf16: of the passes; weights and moments stay fp32


def inputs(samples: Samples, rows: Ints, device: torch.device) -> tuple[Packed, Tensor | None]:
    """Return the arguments of `BertWithHead.forward` for some samples, packed."""
    sequences, bounds = sequences_of(samples, rows)
    lengths = np.array([len(samples.ids[index]) for index in sequences])
    starts = bounds_of(lengths)
    positions = ranges(np.zeros_like(lengths), lengths)
    segments = (positions >= np.repeat(samples.second[sequences], lengths)).astype(np.int64)
    ids = np.concatenate([samples.ids[index] for index in sequences])
    batch = Packed(
        send(ids, device),
        send(segments, device),
        send(positions, device),
        send(starts.astype(np.int32), device),
        int(lengths.max()),
    )
    return batch, send(bounds, device) if len(samples.groups) else None


def sequences_of(samples: Samples, rows: Ints) -> tuple[Ints, Ints]:
    """Return the sequences of B samples `(S,)`, and where each one's begin in them `(B+1,)`."""
    bounds = samples.bounds()
    counts = bounds[rows + 1] - bounds[rows]
    return ranges(bounds[rows], counts), bounds_of(counts)


def labels_of(samples: Samples, rows: Ints, kind: str, device: torch.device) -> Tensor:
    """Return the labels of some samples for `heads.loss_of`."""
    if kind == TAG:
        return send(np.concatenate([samples.labels[row] for row in rows]), device)
    return send(samples.labels[rows], device)


def batch_loss(model: BertWithHead, samples: Samples, rows: Ints, device: torch.device) -> Tensor:
    """Return the mean loss of some samples; the host does not wait for the device."""
    kind, (mean, deviation) = model.config.kind, model.config.scale
    batch, bounds = inputs(samples, rows, device)
    labels = labels_of(samples, rows, kind, device)
    labels = (labels - mean) / deviation if kind == CLASS else labels
    return loss_of(kind, model(batch, bounds).float(), labels, batch, model.config.weights)


def build(size: ModelConfig, weights: Weights | None, head: HeadConfig, seed: int) -> BertWithHead:
    """Build a new head on an encoder with pre-trained weights, or random ones for None.

    Of a head that is among the weights, rows that are not NaN are taken.
    """
    torch.manual_seed(int(counter_rng.key(seed, "finetune", *start_of(weights or {})) >> np.uint64(1)))
    model = BertWithHead(size, head)
    if weights is not None:
        found, fresh = model.pretrained(weights), model.state_dict()
        for name in found.keys() & {"head.weight", "head.bias"}:
            found[name] = torch.where(found[name].isnan(), fresh[name], found[name])
        missing, _ = model.load_state_dict(found, strict=False)
        pools = size.traits.sentence_pairs or architecture_of(size).pooler_source != "pooler"  # by what was learnt
        own = ("head.", "attention.", "shares", *([] if pools else ["pooler."]))
        assert all(name.startswith(own) for name in missing), missing
    return model


def start_of(weights: Weights) -> list[str]:
    """Return a mark of an encoder: with the same seed, one that was tuned gets another head than it was tuned to."""
    names = sorted(name for name, tensor in weights.items() if name.startswith("encoder.") and tensor.dim() == 1)
    return [hashlib.blake2b(weights[name].cpu().float().numpy().tobytes()).hexdigest() for name in names]


def train(
    model: BertWithHead,
    samples: Samples,
    recipe: FineTuningConfig,
    device: torch.device,
    on_batch: Callable[[], object] = lambda: None,
) -> Iterator[float]:
    """Fine-tune `model` in place; yield the mean loss after each epoch.

    Raises:
        Diverged: the loss or a weight is not finite after an epoch.
    """
    model.to(device)
    # The optimizer updates `model`; in half precision a copy computes the passes.
    worker = model
    if recipe.precision != "fp32":
        worker = copy.deepcopy(model).bfloat16()
        prepare_for(device, torch.bfloat16, worker)
    optimizer = torch.optim.AdamW(
        parameter_groups(model, recipe.weight_decay), lr=recipe.learning_rate, eps=1e-6, fused=True
    )
    steps, step = recipe.epochs * batch_count(samples, recipe.batch_size), 0
    schedule = Schedule(ScheduleConfig(name="linear", warmup_share=recipe.warmup_share), steps)
    for epoch in range(recipe.epochs):
        worker.train()
        loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        for rows in epoch_batches(samples, recipe.batch_size, counter_rng.key(recipe.seed, "finetune order", epoch)):
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * schedule.lr_factor(step)
            loss = batch_loss(worker, samples, rows, device)
            worker.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            update(model, worker, optimizer)
            loss_sum += loss.detach() * len(rows)
            step += 1
            on_batch()
        total = float(loss_sum + 0 * nn.utils.get_total_norm(model.parameters()))  # one wait; inf times 0 is NaN
        if not math.isfinite(total):
            raise Diverged("the loss or a weight is not finite; lower the learning rate")
        yield total / len(samples)


def update(model: BertWithHead, worker: BertWithHead, optimizer: torch.optim.Optimizer) -> None:
    """Update `model` with the gradients of `worker`, then copy the weights to `worker`."""
    pairs = [
        (mine, its) for mine, its in zip(model.parameters(), worker.parameters(), strict=True) if its.grad is not None
    ]
    for mine, its in pairs:
        if worker is not model and its.grad is not None:
            mine.grad = its.grad.float()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    if worker is not model:
        with torch.no_grad():
            torch._foreach_copy_([its for _, its in pairs], [mine for mine, _ in pairs])


@torch.no_grad()
def predict(
    model: BertWithHead, samples: Samples, device: torch.device, on_batch: Callable[[], object] = lambda: None
) -> list[npt.NDArray[np.float32]]:
    """Return the logits of each sample: N of `(C,)`, or `(length, C)` for tags and answers; scores by their scale."""
    model.to(device).eval()
    mean, deviation = model.config.scale
    outputs: list[Any] = [None] * len(samples)
    lengths = samples.lengths()
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), EVALUATION_BATCH):
        rows = order[start : start + EVALUATION_BATCH]
        logits = (model(*inputs(samples, rows, device)).float() * deviation + mean).cpu().numpy()
        if model.config.kind in (TAG, ANSWER):
            logits = np.split(logits, np.cumsum(lengths[rows])[:-1])
        for row, values in zip(rows, logits, strict=True):
            outputs[row] = values
        on_batch()
    return outputs
