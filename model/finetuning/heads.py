"""Heads for downstream tasks on the encoder (Devlin et al. 2019, section 4 and figure 4).

Shapes: B samples in a batch, S sequences (S = B except for chunks and choices), T tokens, H hidden,
W input width of the head, C outputs.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import ModelConfig, Weights
from model.encoders.architectures import architecture_of
from model.encoders.attention.rows import padded_places
from model.encoders.batch import Packed
from model.encoders.dropout import Dropout
from model.encoders.encoder import Encoder, initialise, summary_places
from model.finetuning.features import UNLABELLED
from model.huggingface.names import ANSWER, CHOICE, CLASS, TAG


@dataclass(frozen=True)
class HeadConfig:
    """Inputs and outputs of a head."""

    # class: (B, C) per sample; choice: (B, C) over a sample's sequences; tag, answer: (T, C)
    kind: str
    outputs: int  # C; a class head with one output gives a score
    frozen: bool = False  # do not train the encoder
    layers: list[int] = field(default_factory=lambda: [-1])  # inputs if frozen; 0: embeddings
    mix: str = "concat"  # of several layers: concat, mean, or weighted by learnt weights
    pooling: str = "cls"  # of a sequence's tokens if frozen: cls, mean or max
    chunks: str = "mean"  # pooling of a sample's chunks: mean, max or attention
    several: bool = False  # any number of classes of a sample are right, labels (B, C) of 0 and 1
    weights: list[float] | None = None  # (C,) of classes in the loss; if several, of their presence
    scale: tuple[float, float] = (0.0, 1.0)  # mean and deviation of scores: outputs are learnt without


class BertWithHead(nn.Module):
    """Encoder with a downstream head."""

    def __init__(self, size: ModelConfig, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        parts = architecture_of(size)
        self.encoder = Encoder(size, parts)
        pools = config.kind in (CLASS, CHOICE) or parts.pooled_tokens
        self.pooler = parts.pooler(size) if pools and not config.frozen else nn.Identity()
        width = size.hidden
        if config.frozen:
            self.encoder.requires_grad_(False)
            width *= len(config.layers) if config.mix == "concat" else 1
        if config.frozen and config.mix == "weighted":
            self.shares = nn.Parameter(torch.empty(len(config.layers)))
        if config.kind == CLASS and config.chunks == "attention":
            self.attention = nn.Linear(width, 1)
        self.dropout = Dropout(size.dropout)
        self.head = nn.Linear(width, 1 if config.kind == CHOICE else config.outputs)
        initialise(self.named_parameters(), size, parts)

    def pretrained(self, weights: Weights) -> Weights:
        """Return the pre-trained weights that this model has too, by its names.

        A pooler that is not pre-trained starts from the matching part of another head.
        """
        source = architecture_of(self.encoder.config).pooler_source
        pretrained = {}
        for name in self.state_dict():
            where, _, rest = name.partition(".")
            theirs = f"{source}.{rest}" if where == "pooler" else name
            if theirs in weights:
                pretrained[name] = weights[theirs]
        return pretrained

    def train(self, mode: bool = True) -> "BertWithHead":
        """Set the training mode; a frozen encoder stays in evaluation mode, without dropout."""
        super().train(mode)
        if self.config.frozen:
            self.encoder.eval()
        return self

    def forward(self, batch: Packed, bounds: Tensor | None) -> Tensor:
        """Return logits `(B, C)`, or `(T, C)` per token.

        `bounds` `(B+1,)` holds the first sequence of each sample, and S; None if every sample is
        one sequence.
        """
        starts = batch.cu_seqlens
        whole = self.config.kind in (CLASS, CHOICE)
        places = summary_places(starts, self.encoder.config).long() if whole else None
        if self.config.frozen:
            x = self.features(batch)  # (T, W)
            x = x if places is None else pool_tokens(x, starts, places, self.config.pooling)
        else:
            pooling = self.encoder.config.classifier_pooling
            keep = places if pooling == "cls" else None  # only these tokens are read
            rows = len(batch.input_ids if keep is None else keep)
            x = self.encoder(batch, keep)[:rows]  # (S, H), or (T, H), without padding
            if places is not None and keep is None:
                x = pool_tokens(x, starts, places, pooling)
            x = self.pooler(x)
        if self.config.kind == CLASS and bounds is not None:
            x = self.pool_chunks(x, bounds)  # (B, W)
        logits = self.head(self.dropout(x))
        if self.config.kind == CHOICE:
            logits = logits.view(-1, self.config.outputs)
        return logits  # type: ignore[no-any-return]

    def features(self, batch: Packed) -> Tensor:
        """Return the mix of the selected layers `(T, W)`."""
        with torch.no_grad():
            every = self.encoder.states(batch)
        states = [every[layer] for layer in self.config.layers]
        if self.config.mix == "concat":
            return torch.cat(states, -1)
        stacked = torch.stack(states)  # (K, T, H)
        if self.config.mix == "mean":
            return stacked.mean(0)
        return torch.einsum("k,kth->th", self.shares.softmax(0), stacked)

    def pool_chunks(self, x: Tensor, bounds: Tensor) -> Tensor:
        """Pool chunks `(S, W)` -> `(B, W)`; `bounds` `(B+1,)` holds where each sample's begin."""
        kind = self.config.chunks
        count, groups = len(bounds) - 1, owners(bounds, len(x))
        if kind == "attention":
            score = self.attention(x)[:, 0]  # (S,)
            share = (score - pool(score[:, None], groups, count, "max")[groups, 0]).exp()
            total = share.new_zeros(count).index_add(0, groups, share)
            return x.new_zeros(count, x.shape[1]).index_add(0, groups, x * (share / total[groups])[:, None])
        return pool(x, groups, count, kind)


def owners(bounds: Tensor, count: int) -> Tensor:
    """Return which of B ranges each of `count` items is in, from their bounds `(B+1,)`.

    The count is given, because a GPU would be waited for to know it.
    """
    each = torch.arange(len(bounds) - 1, device=bounds.device)
    return each.repeat_interleave(bounds.diff().long(), output_size=count)


def pool(x: Tensor, groups: Tensor, count: int, kind: str) -> Tensor:
    """Return the mean or maximum over the rows `(R, W)` of each of `count` groups `(R,)`."""
    index = groups[:, None].expand_as(x)
    reduce = {"mean": "mean", "max": "amax"}[kind]
    empty = x.new_zeros(count, x.shape[1])
    return empty.scatter_reduce(0, index, x, reduce, include_self=False)


def pool_tokens(x: Tensor, starts: Tensor, places: Tensor, kind: str) -> Tensor:
    """Pool tokens `(T, W)` -> `(S, W)`: the token at `places` `(S,)`, or the mean or maximum."""
    if kind == "cls":
        return x[places]
    return pool(x, owners(starts, len(x)), len(starts) - 1, kind)


def loss_of(kind: str, logits: Tensor, labels: Tensor, batch: Packed, each: list[float] | None = None) -> Tensor:
    """Return the mean loss of a batch: cross entropy, or squared error for scores.

    Labels are `(B,)`, or `(B, C)` if several are right; `(T,)` for tags, some of them `UNLABELLED`; `(S, 2)` for
    answers, the first and the last token within the sequence. `each` has the weights of the classes.
    """
    weights = None if each is None else logits.new_tensor(each)
    if kind == ANSWER:
        longest = batch.max_length
        places = padded_places(batch.cu_seqlens, longest, len(logits))  # (T,)
        padded = logits.new_full((len(labels) * longest, 2), -torch.inf).index_copy(0, places, logits)
        return functional.cross_entropy(padded.view(-1, longest, 2), labels.long())
    if kind == TAG:
        return functional.cross_entropy(logits, labels.long(), weights, ignore_index=UNLABELLED)
    if labels.dim() == 2:
        return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), pos_weight=weights)
    if logits.shape[1] == 1:
        return functional.mse_loss(logits[:, 0], labels.to(logits.dtype))
    return functional.cross_entropy(logits, labels.long(), weights)
