"""What all architectures share: sequences laid end to end, a stack of layers, the masked-LM head.

Sequences lie end to end, without padding, from the embeddings to the losses. Tokens of a sequence
meet only in `attention.attend`; everything else works row by row, so it never sees a padded row.
The heads read few positions, so the last layer computes only those after its attention.

An architecture is an `Architecture`: the parts that it puts into this frame. One file has one, see
`bert` and `modernbert`; `architectures` finds them by name.

Shapes: B sequences in a micro-batch, T real tokens in it, M masked positions, K positions that a
head reads, H hidden, N heads, D = H / N, F feed-forward, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from model.config import ModelConfig
from model.encoders import attention
from model.encoders.batch import Batch


@dataclass(frozen=True)
class Sequences:
    """Where the sequences of a forward pass are, and how their tokens meet.

    A class of its own, so that DeepSpeed hands it on to a layer as it is.
    """

    position_ids: Tensor  # (T,) int64: 0 .. length-1 in each sequence
    cu_seqlens: Tensor  # (B+1,) int32: where each sequence starts, and T
    max_length: int  # none is longer
    backend: str  # a name that `attention.resolve` returned
    # What layers have in common and make once for each pass, by a key of theirs.
    shared: dict[object, tuple[Tensor, Tensor]] = field(default_factory=dict)


class WordEmbeddings(nn.Module):
    """What turns ids, segments and positions, `(T,)` each, into `(T, H)`."""

    word: nn.Embedding  # the decoder's matrix too


class EncoderLayer(nn.Module):
    """A layer: self-attention, then `after`, which works row by row."""

    qkv: nn.Module  # the projections that the attention begins with

    def attend(self, x: Tensor, where: Sequences) -> Tensor:
        """Return what attention mixes: `(T, H)` -> `(T, H)`."""
        raise NotImplementedError

    def after(self, mixed: Tensor, x: Tensor) -> Tensor:
        """Return the output, from that of the attention and the input: twice `(K, H)`."""
        raise NotImplementedError

    def forward(self, x: Tensor, where: Sequences, keep: Tensor | None) -> Tensor:
        """`(T, H)` -> `(T, H)`, or `(K, H)` at the distinct positions `keep` `(K,)`."""
        mixed = self.attend(x, where)
        if keep is not None:
            mixed, x = attention.take_rows(mixed, keep), attention.take_rows(x, keep)
        return self.after(mixed, x)

    def compile_rest(self) -> None:
        """Compile all but the attention, which has kernels or a loop of its own."""
        self.qkv.compile(dynamic=True)
        self.after = torch.compile(self.after, dynamic=True)  # type: ignore[method-assign]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The parts of a network, each made from its sizes."""

    embeddings: Callable[[ModelConfig], WordEmbeddings]
    # Of each layer by its number, from 0; called with `(T, H)`, Sequences and `keep`.
    layer: Callable[[ModelConfig, int], EncoderLayer]
    norm: Callable[[ModelConfig], nn.Module] | None = None  # after the last layer
    # Called with the hidden states `(B, H)` that stand for a sequence -> `(B, H)`.
    pooler: Callable[[ModelConfig], nn.Module]
    masked_head: Callable[[ModelConfig], nn.Module]  # called with `(M, H)`, `(V, H)` -> `(M, V)`
    initialise: Callable[[str, Tensor, ModelConfig], None]  # one parameter, in place
    pairs: bool = False  # it can judge pairs of sentences: pooler and head are pre-trained
    # Where pre-training has the weights that a pooler for fine-tuning starts from.
    pooler_source: str = "pooler"
    pooled_tokens: bool = False  # heads that label tokens read them through the pooler too


class Encoder(nn.Module):
    """Embeddings and layers."""

    def __init__(self, config: ModelConfig, parts: Architecture) -> None:
        super().__init__()
        self.config = config
        self.recompute = False  # what layers compute, in the backward pass, instead of keeping it
        self.embeddings = parts.embeddings(config)
        self.layers = nn.ModuleList(parts.layer(config, n) for n in range(config.layers))
        self.norm = parts.norm(config) if parts.norm else None

    def forward(
        self,
        input_ids: Tensor,
        segment_ids: Tensor,
        position_ids: Tensor,
        cu_seqlens: Tensor,
        max_length: int,
        keep: Tensor | None = None,
    ) -> Tensor:
        """Ids `(T,)` int64 -> hidden states `(T, H)`, or `(K, H)` at the positions `keep`.

        `cu_seqlens` `(B+1,)` int32 says where each sequence starts, and T; none is longer than
        `max_length`. `keep` `(K,)` names each position at most once, in any order; the last layer
        leaves out the others, and what is returned is the same.
        """
        x = self.embeddings(input_ids, segment_ids, position_ids)  # (T, H)
        where = Sequences(position_ids, cu_seqlens, max_length, self._backend(x))
        for number, layer in enumerate(self.layers, 1):
            wanted = keep if number == len(self.layers) else None
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, x, where, wanted, use_reentrant=False)
            else:
                x = layer(x, where, wanted)
        x = x if self.norm is None else self.norm(x)
        assert isinstance(x, Tensor)
        return x

    def states(
        self,
        input_ids: Tensor,
        segment_ids: Tensor,
        position_ids: Tensor,
        cu_seqlens: Tensor,
        max_length: int,
    ) -> list[Tensor]:
        """As `forward`: what the embeddings and each layer give, `layers + 1` times `(T, H)`.

        What the last layer gives is normalised, where the architecture does that.
        """
        found = [self.embeddings(input_ids, segment_ids, position_ids)]
        where = Sequences(position_ids, cu_seqlens, max_length, self._backend(found[0]))
        for layer in self.layers:
            found.append(layer(found[-1], where, None))
        if self.norm is not None:
            found[-1] = self.norm(found[-1])
        return found

    def _backend(self, x: Tensor) -> str:
        config = self.config
        return attention.resolve(
            config.attention, x.device, x.dtype, config.attention_dropout, config.causal,
            windowed=any(getattr(layer, "window", None) for layer in self.layers),
        )  # fmt: skip


def summary_places(cu_seqlens: Tensor, config: ModelConfig) -> Tensor:
    """Which token stands for each sequence, `(B,)`: the first, [CLS].

    In causal attention the last, [SEP]: no other has seen all.
    """
    return cu_seqlens[1:] - 1 if config.causal else cu_seqlens[:-1]


class MaskedHead(nn.Module):
    """Scores of the whole vocabulary: the decoder is the word embeddings, plus a bias."""

    def __init__(self, config: ModelConfig, bias: bool = True) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden, config.hidden, bias=bias)
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon, bias=bias)
        assert config.vocab_size is not None
        self.bias = nn.Parameter(torch.empty(config.vocab_size))

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        """Hidden states `(M, H)` and word embeddings `(V, H)` -> logits `(M, V)`."""
        return F.linear(self.norm(F.gelu(self.dense(x))), words, self.bias)


class PretrainingModel(nn.Module):
    """The encoder with the masked-LM head and, where the architecture has it, that of pairs.

    The parameters are drawn from PyTorch's global generator on creation. They depend on the seed
    and the sizes alone.
    """

    def __init__(self, config: ModelConfig, parts: Architecture) -> None:
        super().__init__()
        self.config, self.judges_pairs = config, parts.pairs
        self.encoder = Encoder(config, parts)
        if parts.pairs:
            self.pooler = parts.pooler(config)
        self.masked_head = parts.masked_head(config)
        if parts.pairs:
            self.next_sentence = nn.Linear(config.hidden, 2)
        initialise(self, config, parts)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Masked-LM logits `(M, V)` at the masked positions, next-sentence logits `(B, 2)`.

        None in place of these, where the architecture has none.
        """
        summary = summary_places(batch.cu_seqlens, self.config)  # (B,)
        if not self.judges_pairs:
            summary = summary[:0]
        # These are never masked, and nothing comes after the last: `keep` has no position twice.
        keep = torch.cat((summary, batch.masked_positions))  # (K,) = (B + M,)
        x = self.encoder(
            batch.input_ids, batch.segment_ids, batch.position_ids,
            batch.cu_seqlens, batch.max_length, keep,
        )  # fmt: skip
        pooled, masked = x[: len(summary)], x[len(summary) :]  # (B, H), (M, H)
        words = self.encoder.embeddings.word.weight
        logits = self.masked_head(masked, words)
        return logits, self.next_sentence(self.pooler(pooled)) if self.judges_pairs else None


def initialise(module: nn.Module, config: ModelConfig, parts: Architecture) -> None:
    """Draw all parameters, in their order of definition."""
    for name, parameter in module.named_parameters():
        parts.initialise(name, parameter, config)
