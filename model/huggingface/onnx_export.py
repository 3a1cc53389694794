"""ONNX export of a Hugging Face folder, checked with onnxruntime against PyTorch.

Inputs `input_ids`, `attention_mask`, `token_type_ids`, each `(B, L)` int64 with dynamic sizes;
outputs `prediction_logits` `(B, L, V)` and `seq_relationship_logits` `(B, 2)`.
"""

import contextlib
import importlib
import io
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError

MODEL = "model.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUTS = ("prediction_logits", "seq_relationship_logits")
TOLERANCE = 1e-4  # per logit; both compute in single precision


def check_installed() -> None:
    """Raise ConfigError if the libraries of the extra `onnx` are not installed."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(f"{name} is not installed; pip install -e '.[onnx]'", "onnx", True) from error


def sample(config: Any, rows: int, longest: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return random padded inputs; the first row has full length."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(config.vocab_size, (rows, longest), generator=draw)
    lengths = torch.linspace(longest, 2, rows).long()
    positions = torch.arange(longest)
    mask = (positions < lengths[:, None]).long()
    return ids, mask, (positions >= lengths[:, None] // 2).long() * mask


def write(folder: Path) -> float:
    """Write model.onnx next to the weights in `folder`; return the largest difference of a logit.

    Compares on inputs of other shapes than traced, to detect sizes exported as constants.

    Raises:
        RuntimeError: The logits of onnxruntime and PyTorch differ.
    """
    from transformers import BertForPreTraining

    # An ONNX graph needs a tuple of outputs.
    model = BertForPreTraining.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", return_dict=False
    ).eval()
    batch = torch.export.Dim("batch")
    limit = model.config.max_position_embeddings
    length = torch.export.Dim("length", min=2, max=limit)
    traced = sample(model.config, 2, min(8, limit), seed=0)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # from inside the exporter
        torch.onnx.export(
            model,
            traced,
            folder / MODEL,
            input_names=INPUTS,
            output_names=OUTPUTS,
            dynamo=True,
            external_data=False,
            dynamic_shapes=[{0: batch, 1: length}] * 3,
        )
    difference = compare(folder / MODEL, model, sample(model.config, 3, limit, seed=1))
    if not difference <= TOLERANCE:
        raise RuntimeError(
            f"wrong ONNX export: logits differ from PyTorch by {difference:.1e}, more than {TOLERANCE:.0e}"
        )
    return difference


def compare(path: Path, model: nn.Module, inputs: tuple[Tensor, Tensor, Tensor]) -> float:
    """Return the largest logit difference at real tokens, onnxruntime against PyTorch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    values = {name: tensor.numpy() for name, tensor in zip(INPUTS, inputs, strict=True)}
    masked, pairs = map(torch.from_numpy, session.run(list(OUTPUTS), values))
    real = inputs[1].bool()
    with torch.no_grad():
        expected, expected_pairs = model(*inputs)
    apart = ((masked - expected)[real], pairs - expected_pairs)
    return max(float(difference.abs().max()) for difference in apart)
