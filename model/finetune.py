"""Fine-tuning: the encoder with a small head on [CLS], as Devlin et al. 2019, section 4.1.

Shapes: N samples, B sequences in a batch, T tokens in it, H hidden, C classes (1: a score).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.bert import Encoder, Pooler, initialise, summary_places
from model.config import ModelConfig, ScheduleConfig
from model.dropout import Dropout
from model.optim import parameter_groups
from model.schedule import rate_share
from pipeline import keyed
from pipeline.text.wordpiece import WordPiece

CLIP = 1.0  # largest gradient norm
SORTED = 32  # batches whose samples are sorted by length together: short ones cost little
EVALUATION_BATCH = 128


@dataclass(frozen=True)
class Samples:
    """Tokenized samples."""

    ids: list[npt.NDArray[np.int64]]  # N of (length,), with [CLS] and [SEP]
    second: npt.NDArray[np.int64]  # (N,) where segment B starts in each
    labels: npt.NDArray[np.float64]  # (N,) class indices or scores

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a head is trained."""

    batch_size: int
    learning_rate: float
    epochs: int
    seed: int
    warmup_share: float
    weight_decay: float


class Classifier(nn.Module):
    """Encoder, pooler, and a linear head with C outputs."""

    def __init__(self, config: ModelConfig, classes: int) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.pooler = Pooler(config)
        self.dropout = Dropout(config.dropout)
        self.head = nn.Linear(config.hidden, classes)
        initialise(self, config.initializer_range)

    def forward(
        self, ids: Tensor, segments: Tensor, positions: Tensor, starts: Tensor, longest: int
    ) -> Tensor:
        """Ids, segments and positions `(T,)`, `starts` `(B+1,)` -> logits `(B, C)`."""
        places = summary_places(starts, self.encoder.config)
        hidden = self.encoder(ids, segments, positions, starts, longest, places)  # (B, H)
        return self.head(self.dropout(self.pooler(hidden)))  # type: ignore[no-any-return]


def tokenize(
    wordpiece: WordPiece, first: list[str], second: list[str] | None, labels: list[float],
    longest: int,
) -> Samples:  # fmt: skip
    """[CLS] first [SEP] or [CLS] first [SEP] second [SEP], at most `longest` tokens.

    What is too long loses tokens from the end of its longer part, one at a time.
    """
    a, b = texts(wordpiece, first), texts(wordpiece, second or [])
    cls, sep = [wordpiece.cls], [wordpiece.sep]
    ids, starts = [], []
    for index, part in enumerate(a):
        if second is None:
            part = part[: longest - 2]
            ids.append(np.concatenate([cls, part, sep]))
        else:
            other, room = b[index], longest - 3
            if len(part) + len(other) > room:
                keep = min(len(part), max(room - len(other), (room + 1) // 2))
                part, other = part[:keep], other[: room - keep]
            ids.append(np.concatenate([cls, part, sep, other, sep]))
        starts.append(len(part) + 2)
    return Samples(ids, np.array(starts), np.array(labels, np.float64))


def texts(wordpiece: WordPiece, sentences: list[str]) -> list[npt.NDArray[np.int64]]:
    """The ids of each sentence."""
    if not sentences:
        return []
    ids, lengths = wordpiece.encode(sentences)
    return np.split(ids.astype(np.int64), np.cumsum(lengths)[:-1])


def inputs(samples: Samples, rows: npt.NDArray[np.int64], device: torch.device) -> tuple[Any, ...]:
    """The arguments of `Classifier.forward` for some samples, laid end to end."""
    lengths = np.array([len(samples.ids[row]) for row in rows])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    segments = (positions >= np.repeat(samples.second[rows], lengths)).astype(np.int64)
    ids = np.concatenate([samples.ids[row] for row in rows])
    arrays = (ids, segments, positions, starts.astype(np.int32))
    return *(torch.from_numpy(array).to(device) for array in arrays), int(lengths.max())


def epoch_batches(samples: Samples, size: int, key: np.uint64) -> Iterator[npt.NDArray[np.int64]]:
    """Every sample once, in batches of like length, in a keyed order."""
    order = keyed.permutation(key, len(samples))
    lengths = np.array([len(ids) for ids in samples.ids])
    batches = []
    for start in range(0, len(order), size * SORTED):
        pool = order[start : start + size * SORTED]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[low : low + size] for low in range(0, len(pool), size)]
    for index in keyed.permutation(key ^ np.uint64(1), len(batches)):
        yield batches[index]


def build(
    config: ModelConfig, weights: dict[str, Tensor] | None, classes: int, seed: int
) -> Classifier:
    """A classifier on pre-trained weights, or for None on random ones; the head is always new."""
    torch.manual_seed(int(keyed.key(seed, "finetune") >> np.uint64(1)))
    model = Classifier(config, classes)
    if weights is not None:
        mine = set(model.state_dict())
        missing, _ = model.load_state_dict(
            {name: tensor for name, tensor in weights.items() if name in mine}, strict=False
        )
        assert all(name.startswith("head.") for name in missing), missing
    return model


def train(
    model: Classifier, samples: Samples, recipe: Recipe, device: torch.device,
    on_batch: Callable[[], object] = lambda: None,
) -> Iterator[float]:  # fmt: skip
    """Fine-tune `model` in place; yields the mean loss of each epoch when the epoch is over."""
    model.to(device)
    optimizer = torch.optim.AdamW(
        parameter_groups(model, recipe.weight_decay), lr=recipe.learning_rate, eps=1e-6, fused=True
    )
    schedule = ScheduleConfig(name="linear", warmup_share=recipe.warmup_share)
    steps, step = recipe.epochs * batches(samples, recipe.batch_size), 0
    for epoch in range(recipe.epochs):
        model.train()
        loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        order = keyed.key(recipe.seed, "finetune order", epoch)
        for rows in epoch_batches(samples, recipe.batch_size, order):
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * rate_share(schedule, step, steps)
            labels = torch.from_numpy(samples.labels[rows]).to(device)
            loss = loss_of(model(*inputs(samples, rows, device)), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            loss_sum += loss.detach() * len(rows)
            step += 1
            on_batch()
        yield float(loss_sum) / len(samples)


def batches(samples: Samples, size: int) -> int:
    """How many batches of `size` hold all samples."""
    return -(-len(samples) // size)


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of `(B, C)`; the squared error where C is 1."""
    if logits.shape[1] == 1:
        return functional.mse_loss(logits[:, 0], labels.to(logits.dtype))
    return functional.cross_entropy(logits, labels.long())


@torch.no_grad()
def predict(
    model: Classifier, samples: Samples, device: torch.device,
    on_batch: Callable[[], object] = lambda: None,
) -> npt.NDArray[np.float64]:  # fmt: skip
    """The class index or score of each sample: `(N,)`."""
    model.to(device).eval()
    found = np.zeros(len(samples))
    order = np.argsort([len(ids) for ids in samples.ids], kind="stable")
    for start in range(0, len(order), EVALUATION_BATCH):
        rows = order[start : start + EVALUATION_BATCH]
        logits = model(*inputs(samples, rows, device))
        best = logits[:, 0] if logits.shape[1] == 1 else logits.argmax(-1)
        found[rows] = best.double().cpu().numpy()
        on_batch()
    return found
