"""Common parts of all architectures: packed sequences, a stack of layers, the masked-LM head.

Sequences are packed, without padding, from the embeddings to the losses. Tokens of a sequence
interact only in `attend`; everything else works per row. The heads read few positions,
so the last layer computes only those after its attention.

An `Architecture` holds the parts that differ. Each has a file, see `bert` and `modernbert`;
`architectures` finds them by name.

Shapes: B sequences in a micro-batch, T real tokens in it, M masked positions, K positions that a
head reads, H hidden, N heads, D = H / N, F feed-forward, V vocabulary.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from model.config import ModelConfig
from model.encoders.attention import dispatch
from model.encoders.attention.rows import pad_rows, take_rows
from model.encoders.batch import Batch, Packed
from pipeline.tokenization.known_models import ACTIVATIONS

VARIANTS = 64  # graphs of the same code at most; a handful are made
TOGETHER = 4  # layers of a compiled graph at most, unless kinds of layers repeat after more


@dataclass(frozen=True)
class Sequences:
    """Bounds of the sequences in a forward pass, and the attention backend.

    A class rather than a tuple: DeepSpeed passes it to layers unchanged.
    """

    position_ids: Tensor  # (T,) int64: 0 .. length-1 in each sequence
    cu_seqlens: Tensor  # (B+1,) int32: where each sequence starts, and T
    max_length: int  # upper limit
    backend: str  # a name from `dispatch.resolve`
    multiple: int = 1  # of rows in a matrix product, padding included
    # Tensors that layers share and compute once per pass, by a key of theirs.
    shared: dict[object, tuple[Tensor, Tensor]] = field(default_factory=dict)


class WordEmbeddings(nn.Module):
    """Embedding of ids, segments and positions, `(T,)` each, as `(T, H)`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.word = nn.Embedding(config.entries, config.hidden)  # the decoder's matrix too


class QueryKeyValue(nn.Module):
    """Three projections with parameters of their own, computed as one.

    Apart in the checkpoint, because a fused matrix would have one trust ratio under LAMB; the
    parameters are held here, by the module that uses them, because ZeRO-3 gathers them by module.
    """

    def __init__(self, hidden: int, heads: int, bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Parameter(torch.empty(hidden, hidden))
        self.key = nn.Parameter(torch.empty(hidden, hidden))
        self.value = nn.Parameter(torch.empty(hidden, hidden))
        self.biased = bias
        if bias:
            self.query_bias = nn.Parameter(torch.empty(hidden))
            self.key_bias = nn.Parameter(torch.empty(hidden))
            self.value_bias = nn.Parameter(torch.empty(hidden))

    def forward(self, x: Tensor, queries: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """`(T, H)` -> query, key and value, each `(T, N, D)`; queries only at the places `(K,)`, if given."""
        weights = self.query, self.key, self.value
        biases = (self.query_bias, self.key_bias, self.value_bias) if self.biased else ()
        if queries is None:
            q, k, v = self._projected(x, weights, biases)
        else:
            (q,) = self._projected(take_rows(x, queries), weights[:1], biases[:1])
            k, v = self._projected(x, weights[1:], biases[1:])
        return q, k, v

    def _projected(self, x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Compute several projections as one product: `(T, H)` -> `(T, N, D)` each."""
        joined = F.linear(x, torch.cat(tuple(weights)), torch.cat(tuple(biases)) if biases else None)
        return joined.view(len(x), len(weights), self.heads, x.shape[1] // self.heads).unbind(1)


class EncoderLayer(nn.Module):
    """A layer: self-attention, then `feed_forward_block`, which works row by row."""

    qkv: nn.Module  # the projections that the attention begins with

    def prepare(self, seq_info: Sequences) -> None:
        """Put into `seq_info.shared` what is made once for each pass, for all layers of a kind."""

    def attend(self, x: Tensor, seq_info: Sequences, queries: Tensor | None) -> Tensor:
        """Return what attention mixes: `(T, H)` -> `(T, N, D)`, or `(K, N, D)` at the places `queries`."""
        raise NotImplementedError

    def feed_forward_block(self, attn_out: Tensor, x: Tensor) -> Tensor:
        """Return the output, from that of the attention and the input: twice `(K, H)`."""
        raise NotImplementedError

    def forward(self, x: Tensor, seq_info: Sequences, keep: Tensor | None) -> Tensor:
        """`(T, H)` -> `(T, H)`, or `(K, H)` at the distinct positions `keep` `(K,)`.

        T includes padding, and K too gets it, up to `seq_info.multiple`.
        """
        queries = keep if dispatch.BACKENDS[seq_info.backend].takes_queries else None
        attn_out = self.attend(x, seq_info, queries).flatten(1)
        if keep is not None:
            if queries is None:
                attn_out = take_rows(attn_out, keep)
            attn_out, x = (pad_rows(rows, seq_info.multiple) for rows in (attn_out, take_rows(x, keep)))
        return self.feed_forward_block(attn_out, x)

    def compile_rest(self) -> None:
        """Compile all but the attention, which has kernels or a loop of its own."""
        self.qkv.compile(dynamic=True)
        self.feed_forward_block = torch.compile(self.feed_forward_block, dynamic=True)  # type: ignore[method-assign]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Factories for the parts of a network, given its sizes."""

    embeddings: Callable[[ModelConfig], WordEmbeddings]
    # Of each layer by its number, from 0; called with `(T, H)`, Sequences and `keep`.
    layer: Callable[[ModelConfig, int], EncoderLayer]
    norm: Callable[[ModelConfig], nn.Module] = lambda _: nn.Identity()  # after the last layer
    # Called with the hidden states `(B, H)` of the summary tokens -> `(B, H)`.
    pooler: Callable[[ModelConfig], nn.Module]
    masked_head: Callable[[ModelConfig], nn.Module]  # called with `(M, H)`, `(V, H)` -> `(M, V)`
    initialise: Callable[[str, Tensor, ModelConfig], object]  # one matrix, in place
    period: Callable[[ModelConfig], int] = lambda _: 1  # layers, after which their kinds repeat
    # Name of the pre-trained module from which a pooler for fine-tuning starts.
    pooler_source: str = "pooler"
    pooled_tokens: bool = False  # heads that label tokens also read them through the pooler


class Encoder(nn.Module):
    """Encoder: embeddings and layers."""

    def __init__(self, config: ModelConfig, parts: Architecture) -> None:
        super().__init__()
        self.config = config
        self.recompute = False  # what layers compute, in the backward pass, instead of keeping it
        self.compiled = False  # whether layers are
        self.multiple = 1  # of rows in a matrix product, padding included
        self.period = parts.period(config)
        self.embeddings = parts.embeddings(config)
        self.layers = nn.ModuleList(parts.layer(config, n) for n in range(config.layers))
        # What is called one after another as layers are: these, or graphs of several.
        self._calls: list[Callable[..., Tensor]] = list(self.layers)
        self.norm = parts.norm(config)

    def forward(self, batch: Packed, keep: Tensor | None = None) -> Tensor:
        """Return the hidden states of a batch, `(T, H)`, or `(K, H)` at the positions `keep`.

        `keep` `(K,)` holds distinct positions in any order; the last layer skips the others, which
        does not change the result. Rows that pad the result up to a multiple of `self.multiple`
        follow.
        """
        x, seq_info = self._embedded(batch, self.multiple)
        for number, call in enumerate(self._calls, 1):
            positions = keep if number == len(self._calls) else None
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(call, x, seq_info, positions, use_reentrant=False)
            else:
                x = call(x, seq_info, positions)
        return self.norm(x)  # type: ignore[no-any-return]

    def states(self, batch: Packed) -> list[Tensor]:
        """Return the outputs of the embeddings and of each layer, `layers + 1` times `(T, H)`.

        The last output includes the final norm, if any.
        """
        x, seq_info = self._embedded(batch)
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1], seq_info, None))
        states[-1] = self.norm(states[-1])
        return states

    def _embedded(self, batch: Packed, multiple: int = 1) -> tuple[Tensor, Sequences]:
        """Return the embeddings of a batch, padded, and what all layers know of its sequences."""
        input_ids, segment_ids, position_ids = (
            pad_rows(ids, multiple) for ids in (batch.input_ids, batch.segment_ids, batch.position_ids)
        )
        x: Tensor = self.embeddings(input_ids, segment_ids, position_ids)  # (T, H)
        backend = self.backend(x.device, x.dtype)
        seq_info = Sequences(position_ids, batch.cu_seqlens, batch.max_length, backend, multiple)
        for layer in self.layers:
            layer.prepare(seq_info)  # type: ignore[operator]
        if self.compiled:  # else the compiler takes sizes for constants that were the same twice
            from torch._dynamo import maybe_mark_dynamic  # seconds, which others need not wait

            common = (table for tables in seq_info.shared.values() for table in tables)
            for tensor in (position_ids, batch.cu_seqlens, *common):
                maybe_mark_dynamic(tensor, 0)
        return x, seq_info

    def backend(self, device: torch.device, dtype: torch.dtype) -> str:
        """Return the name of the attention backend for a device and a type.

        Raises:
            ConfigError: the one that the configuration names cannot work there.
        """
        config = self.config
        return dispatch.resolve(config.attention, device, dtype, config.hidden // config.heads)

    def compile_layers(self, device: torch.device, dtype: torch.dtype, compiler: str = "inductor") -> None:
        """Compile the layers, a few of them as one graph for batches of all sizes.

        The host needs as long to enter a graph as to launch half of a layer. But a graph gives no
        gradient before its last is made, so that one of all layers would leave nothing to send
        meanwhile: `TOGETHER` of `base` or `large` are about what is sent at a time. What is
        recomputed is one layer at a time, to keep little. On a CPU attention is a loop that no
        compiler takes: it stays outside.
        """
        from torch._dynamo import config as dynamo_config
        from torch._inductor import config as inductor_config

        self.compiled = True
        inductor_config.fallback_random = device.type == "cpu"  # the draws of what is not compiled
        # Groups share their code, and with it the limit: train and evaluation, last and others.
        dynamo_config.recompile_limit = max(dynamo_config.recompile_limit, VARIANTS)
        if self.backend(device, dtype) == "each":
            for layer in self.layers:
                layer.compile_rest()  # type: ignore[operator]
            return
        size = 1 if self.recompute else group_size(self.period)
        run = torch.compile(run_layers, dynamic=True, fullgraph=True, backend=compiler)
        layers: tuple[Any, ...] = tuple(self.layers)
        self._calls = [functools.partial(run, layers[start : start + size]) for start in range(0, len(layers), size)]


def group_size(period: int) -> int:
    """Return the number of layers in a graph: equal groups of layers share one.

    >>> [group_size(period) for period in (1, 2, 3, 6)]
    [4, 4, 3, 6]
    """
    return max(1, TOGETHER // period) * period


def run_layers(layers: Sequence[EncoderLayer], x: Tensor, seq_info: Sequences, keep: Tensor | None) -> Tensor:
    """Compute layers, one after another; the last of them at the positions `keep`, if any."""
    *inner, last = layers
    for layer in inner:
        x = layer(x, seq_info, None)
    return last(x, seq_info, keep)  # type: ignore[no-any-return]


def summary_places(cu_seqlens: Tensor, config: ModelConfig) -> Tensor:
    """Return the position of each sequence's summary token, `(B,)`: [CLS], the first.

    With causal attention it is [SEP], the last, which alone attends to all tokens.
    """
    return cu_seqlens[1:] - 1 if config.causal else cu_seqlens[:-1]


def activation(config: ModelConfig) -> nn.Module:
    """Build the activation of feed-forward parts and heads."""
    return nn.GELU(ACTIVATIONS[config.activation])


def layer_norm(config: ModelConfig, bias: bool = True) -> nn.LayerNorm:
    """Build a layer norm."""
    return nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon, bias=bias)


class Transform(nn.Module):
    """What heads compute first: projection, activation and norm."""

    def __init__(self, config: ModelConfig, bias: bool = True) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden, config.hidden, bias=bias)
        self.norm, self.activation = layer_norm(config, bias), activation(config)

    def hidden(self, x: Tensor) -> Tensor:
        """Map hidden states `(K, H)` to what is read next `(K, H)`."""
        return self.norm(self.activation(self.dense(x)))  # type: ignore[no-any-return]


class MaskedHead(Transform):
    """Masked-LM head; the decoder is the word embeddings plus a bias.

    Matrix products on a GPU are several times slower where rows are not aligned, so logits may be
    padded to a multiple of some entries. The padding is minus infinity: it has no probability and
    no gradient. Parameters, and with them checkpoints and exports, keep the true size.
    """

    multiple = 1  # of entries, padding included

    def __init__(self, config: ModelConfig, bias: bool = True) -> None:
        super().__init__(config, bias)
        self.bias = nn.Parameter(torch.empty(config.entries))

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        """Map hidden states `(M, H)`, word embeddings `(V, H)` -> logits `(M, V)`, V padded."""
        bias: Tensor = self.bias
        missing = -len(words) % self.multiple
        if missing:
            words = F.pad(words, (0, 0, 0, missing))
            bias = F.pad(bias, (0, missing), value=-torch.inf)
        return F.linear(self.hidden(x), words, bias)


class PretrainingModel(nn.Module):
    """Encoder with the masked-LM head and, if the architecture has one, the next-sentence head.

    The parameters are drawn from PyTorch's global generator on creation; they depend only on the
    seed and the sizes.
    """

    def __init__(self, config: ModelConfig, parts: Architecture) -> None:
        super().__init__()
        self.config, self.judges_pairs = config, config.traits.sentence_pairs
        self.encoder = Encoder(config, parts)
        if self.judges_pairs:
            self.pooler = parts.pooler(config)
        self.masked_head = parts.masked_head(config)
        if self.judges_pairs:
            self.next_sentence = nn.Linear(config.hidden, 2)
        initialise(self.named_parameters(), config, parts)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return masked-LM logits `(M, V)` and next-sentence logits `(B, 2)`.

        The latter are None if the architecture has no next-sentence head.
        """
        summary = summary_places(batch.cu_seqlens, self.config)  # (B,)
        if not self.judges_pairs:
            summary = summary[:0]
        # Summary tokens are never masked or predicted from: `keep` has distinct positions.
        keep = torch.cat((summary, batch.masked_positions))  # (K,) = (B + M,)
        x = self.encoder(batch, keep)
        pooled, masked = x[: len(summary)], x[len(summary) :]  # (B, H), (M, H)
        words = self.encoder.embeddings.word.weight
        logits = self.masked_head(masked, words)
        return logits, self.next_sentence(self.pooler(pooled)) if self.judges_pairs else None


def prepare_for(device: torch.device, dtype: torch.dtype, module: nn.Module) -> None:
    """Choose the equivalent computations of a model that are fast where it is trained.

    In bf16 on a CPU the rows of matrix products are padded to few different numbers: it takes several
    times as long to make a kernel for a shape as to run it, and keeps only the last thousand.
    """
    for part in module.modules():
        if device.type == "cuda":
            padded = isinstance(part, MaskedHead)
        else:
            padded = dtype == torch.bfloat16 and isinstance(part, Encoder) and part.backend(device, dtype) == "each"
        if padded and isinstance(part, MaskedHead | Encoder):
            part.multiple = 64


def initialise(parameters: Iterable[tuple[str, Tensor]], config: ModelConfig, parts: Architecture) -> None:
    """Initialise named parameters in their order: matrices as the architecture does, norms one, biases zero."""
    with torch.no_grad():
        for name, parameter in parameters:
            if parameter.dim() > 1:
                parts.initialise(name, parameter, config)
            else:
                parameter.fill_(name.endswith("norm.weight"))
