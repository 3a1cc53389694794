"""Self-attention over packed sequences: one interface, several backends.

`attend` is the only operation that mixes tokens of a sequence. Every backend computes
softmax(q k^T / sqrt(D)) v within each sequence (Vaswani et al. 2017, section 3.2.1); they differ
only in how they keep sequences apart. On a GPU `flash` is for half precision and `padded` for the
rest; on a CPU `each` is the fastest.

Forward and backward of one layer on one CPU core, milliseconds, 32 sequences of 116 tokens on
average and 128 at most, D = 64, dropout 0.1:

                      padded  each
    fp32,  2 heads      25     12
    fp32, 12 heads     174     84
    bf16,  2 heads      24     12
    bf16, 12 heads     165     71

Shapes: B sequences, L longest of them, T real tokens, N heads, D width of a head.
"""

import torch
from torch import Tensor

from model.encoders.attention.backend import AttentionArgs, Backend
from model.encoders.attention.cpu import per_sequence
from model.encoders.attention.flash import EIGHT, flash_kernel, unsupported_reason
from model.encoders.attention.rows import take_rows
from model.encoders.attention.sdpa import padded
from pipeline.errors import ConfigError

BACKENDS = {
    "each": Backend(per_sequence, takes_queries=True),
    "padded": Backend(padded),
    "flash": Backend(flash_kernel, unsupported_reason),
}


def attend(q: Tensor, k: Tensor, v: Tensor, backend: str, args: AttentionArgs) -> Tensor:
    """Mix the values of each sequence's tokens: `(T, N, D)` three times -> `(T, N, D)`.

    `backend` is a name from `resolve`. With `args.queries` `(K,)`, here distinct places in any order,
    only these tokens attend: `q` and the result are `(K, N, D)`. The backend must be one that
    `takes_queries`.
    """
    if not q.shape[0]:  # no sequences: a rank's share of a batch smaller than the world
        return q + k.sum(0) + v.sum(0)  # all of them: ZeRO 3 compares the order of gradients between ranks
    if args.window is not None and args.window >= args.max_length - 1:
        args = args._replace(window=None)  # the window covers every sequence
    run = BACKENDS[backend].run
    if args.queries is None:
        return run(q, k, v, args)
    order = args.queries.argsort()
    args = args._replace(queries=args.queries[order])
    return take_rows(run(take_rows(q, order), k, v, args), order.argsort())


def resolve(backend: str, device: torch.device, dtype: torch.dtype, width: int = EIGHT) -> str:
    """Return the name of the backend that `backend` means here; `auto` takes the fastest that fits.

    `width` is that of a head.

    Raises:
        ConfigError: The requested backend is unknown or not supported here.
    """
    if backend == "auto" or (backend == "flash" and device.type == "cpu"):  # as a model made on a GPU says
        if device.type != "cuda":
            return "each"
        return "padded" if unsupported_reason(device, dtype, width) else "flash"
    if backend not in BACKENDS:
        raise ConfigError(f"must be one of auto, {', '.join(BACKENDS)}", "model.attention", backend)
    reason = BACKENDS[backend].unsupported_reason(device, dtype, width)
    if reason:
        raise ConfigError(f"{reason}; use model.attention=auto", "model.attention", backend)
    return backend
