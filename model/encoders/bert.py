"""BERT as published (Devlin et al. 2019), computed on real tokens only.

Sequences lie end to end, without padding, from the embeddings to the losses. Tokens of a sequence
meet only in `attention.attend`; everything else works row by row, so it never sees a padded row.
The heads read few positions, so the last layer computes only those after its attention.

Shapes: B sequences in a micro-batch, T real tokens in it, M masked positions, K positions that a
head reads, H hidden, N heads, D = H / N, F feed-forward, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from model.config import ModelConfig
from model.encoders import attention
from model.encoders.batch import Batch
from model.encoders.dropout import Dropout
from model.encoders.linear import Linear, linear
from pipeline.common.errors import ConfigError

SEGMENTS = 2


class Embeddings(nn.Module):
    """Token + position + segment, normalised."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.vocab_size is None:
            raise ConfigError("model.vocab_size: not known yet; take the tokenizer's")
        self.word = nn.Embedding(config.vocab_size, config.hidden)
        self.position = nn.Embedding(config.positions, config.hidden)
        self.segment = nn.Embedding(SEGMENTS, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, input_ids: Tensor, segment_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Three times `(T,)` int64 -> `(T, H)`."""
        x = self.word(input_ids) + self.position(position_ids) + self.segment(segment_ids)
        return self.dropout(self.norm(x))  # type: ignore[no-any-return]


class QueryKeyValue(nn.Module):
    """Three projections with parameters of their own, computed as one.

    Apart in the checkpoint, because a fused matrix would have one trust ratio under LAMB; the
    parameters are held here, by the module that uses them, because ZeRO-3 gathers them by module.
    """

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Parameter(torch.empty(hidden, hidden))
        self.key = nn.Parameter(torch.empty(hidden, hidden))
        self.value = nn.Parameter(torch.empty(hidden, hidden))
        self.query_bias = nn.Parameter(torch.empty(hidden))
        self.key_bias = nn.Parameter(torch.empty(hidden))
        self.value_bias = nn.Parameter(torch.empty(hidden))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`(T, H)` -> query, key and value, each `(T, N, D)`."""
        weight = torch.cat((self.query, self.key, self.value))  # (3H, H)
        bias = torch.cat((self.query_bias, self.key_bias, self.value_bias))
        shape = (len(x), 3, self.heads, x.shape[1] // self.heads)
        q, k, v = linear(x, weight, bias).view(shape).unbind(1)
        return q, k, v


class Residual(nn.Module):
    """Project, drop, add, normalise: how each half of a layer ends (post-layer-norm)."""

    def __init__(self, width: int, config: ModelConfig) -> None:
        super().__init__()
        self.dense = Linear(width, config.hidden)
        self.dropout = Dropout(config.dropout)
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """`(T, width)` and `(T, H)` -> `(T, H)`."""
        return self.norm(residual + self.dropout(self.dense(x)))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """One transformer layer: self-attention, then a feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_dropout, self.causal = config.attention_dropout, config.causal
        self.qkv = QueryKeyValue(config.hidden, config.heads)
        self.mix = Residual(config.hidden, config)
        self.up = Linear(config.hidden, config.feed_forward)
        self.down = Residual(config.feed_forward, config)

    def forward(
        self, x: Tensor, cu_seqlens: Tensor, max_length: int, backend: str, keep: Tensor | None
    ) -> Tensor:
        """`(T, H)` -> `(T, H)`, or `(K, H)` at the distinct positions `keep` `(K,)`."""
        dropout = self.attention_dropout if self.training else 0.0
        q, k, v = self.qkv(x)
        mixed = attention.attend(q, k, v, cu_seqlens, max_length, dropout, backend, self.causal)
        mixed = mixed.flatten(1)  # (T, H)
        if keep is not None:
            mixed, x = attention.take_rows(mixed, keep), attention.take_rows(x, keep)
        return self.after(mixed, x)

    def after(self, mixed: Tensor, x: Tensor) -> Tensor:
        """What follows the attention: twice `(K, H)` -> `(K, H)`."""
        x = self.mix(mixed, x)
        return self.down(F.gelu(self.up(x)), x)  # type: ignore[no-any-return]

    def compile_rest(self) -> None:
        """Compile all but the attention, which has kernels or a loop of its own."""
        self.qkv.compile(dynamic=True)
        self.after = torch.compile(self.after, dynamic=True)  # type: ignore[method-assign]


class Encoder(nn.Module):
    """Embeddings and layers."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.recompute = False  # what layers compute, in the backward pass, instead of keeping it
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))

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
        backend = self._backend(x)
        for number, layer in enumerate(self.layers, 1):
            wanted = keep if number == len(self.layers) else None
            inputs = (x, cu_seqlens, max_length, backend, wanted)
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, *inputs, use_reentrant=False)
            else:
                x = layer(*inputs)
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
        """As `forward`: what the embeddings and each layer give, `layers + 1` times `(T, H)`."""
        found = [self.embeddings(input_ids, segment_ids, position_ids)]
        backend = self._backend(found[0])
        for layer in self.layers:
            found.append(layer(found[-1], cu_seqlens, max_length, backend, None))
        return found

    def _backend(self, x: Tensor) -> str:
        config = self.config
        return attention.resolve(
            config.attention, x.device, x.dtype, config.attention_dropout, config.causal
        )


class Pooler(nn.Module):
    """A summary of each sequence from the token that stands for it, see `summary_places`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden, config.hidden)

    def forward(self, summary: Tensor) -> Tensor:
        """Hidden states of these tokens `(B, H)` -> `(B, H)`."""
        return torch.tanh(self.dense(summary))


def summary_places(cu_seqlens: Tensor, config: ModelConfig) -> Tensor:
    """Which token stands for each sequence, `(B,)`: the first, [CLS].

    In causal attention the last, [SEP]: no other has seen all.
    """
    return cu_seqlens[1:] - 1 if config.causal else cu_seqlens[:-1]


class MaskedHead(nn.Module):
    """Scores of the whole vocabulary: the decoder is the word embeddings, plus a bias."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        assert config.vocab_size is not None
        self.bias = nn.Parameter(torch.empty(config.vocab_size))

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        """Hidden states `(M, H)` and word embeddings `(V, H)` -> logits `(M, V)`."""
        return F.linear(self.norm(F.gelu(self.dense(x))), words, self.bias)


class BertForPreTraining(nn.Module):
    """The encoder with the masked-LM and the next-sentence head.

    The parameters are drawn from PyTorch's global generator on creation: normal(0,
    `initializer_range`) matrices, zero biases, unit norms. They depend on the seed and the sizes
    alone.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        # The decoder's gradient of the same matrix is dense; the few rows of the embedding's are
        # added to it, instead of a second matrix that is nearly all zeros.
        self.encoder.embeddings.word.sparse = True
        self.pooler = Pooler(config)
        self.masked_head = MaskedHead(config)
        self.next_sentence = nn.Linear(config.hidden, 2)
        initialise(self, config.initializer_range)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Masked-LM logits `(M, V)` at the masked positions, next-sentence logits `(B, 2)`."""
        # These are never masked, and nothing comes after the last: `keep` has no position twice.
        summary = summary_places(batch.cu_seqlens, self.config)  # (B,)
        keep = torch.cat((summary, batch.masked_positions))  # (K,) = (B + M,)
        x = self.encoder(
            batch.input_ids, batch.segment_ids, batch.position_ids,
            batch.cu_seqlens, batch.max_length, keep,
        )  # fmt: skip
        pooled, masked = x[: len(summary)], x[len(summary) :]  # (B, H), (M, H)
        words = self.encoder.embeddings.word.weight
        return self.masked_head(masked, words), self.next_sentence(self.pooler(pooled))


def initialise(module: nn.Module, deviation: float) -> None:
    """Draw all parameters anew, in their order of definition, as Devlin et al.'s code does."""
    for name, parameter in module.named_parameters():
        initialise_parameter(name, parameter, deviation)


def initialise_parameter(name: str, parameter: Tensor, deviation: float) -> None:
    """Draw one parameter in place: matrices normal, norms one, biases zero."""
    if parameter.dim() > 1:
        nn.init.normal_(parameter, std=deviation)
    elif name.endswith("norm.weight"):
        nn.init.ones_(parameter)
    else:
        nn.init.zeros_(parameter)


def parameter_shapes(config: ModelConfig) -> dict[str, torch.Size]:
    """The shape of every parameter by name, in order, without making any."""
    with torch.device("meta"):
        model = BertForPreTraining(config)
    return {name: parameter.shape for name, parameter in model.named_parameters()}
