"""A Hugging Face folder as ONNX, checked with onnxruntime against PyTorch.

Inputs `input_ids`, `attention_mask`, `token_type_ids`, each `(B, L)` int64 with both sizes free;
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

from pipeline.common.errors import ConfigError

MODEL = "model.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUTS = ("prediction_logits", "seq_relationship_logits")
TOLERANCE = 1e-4  # of a logit; both sides compute in single precision


def check_installed() -> None:
    """Raise ConfigError where the libraries of the extra `onnx` are missing."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"onnx=true: {name} is not installed; pip install -e '.[onnx]'"
            ) from error


class Outputs(nn.Module):
    """Theirs with a tuple for an answer, which is what an ONNX graph has."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        """Three times `(B, L)` -> both logits."""
        found = self.model(input_ids=ids, attention_mask=mask, token_type_ids=types)
        return found.prediction_logits, found.seq_relationship_logits


def sample(config: Any, rows: int, longest: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random padded inputs, of which the first row is full."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(config.vocab_size, (rows, longest), generator=draw)
    lengths = torch.linspace(longest, 2, rows).long()
    places = torch.arange(longest)
    mask = (places < lengths[:, None]).long()
    return ids, mask, (places >= lengths[:, None] // 2).long() * mask


def write(folder: Path) -> float:
    """Write model.onnx beside the weights in `folder`; returns the largest difference of a logit.

    What is compared has another shape than what the graph was traced with, so that a size that
    was taken for a constant shows.

    Raises:
        RuntimeError: onnxruntime gives other logits than PyTorch.
    """
    from transformers import BertForPreTraining

    theirs = BertForPreTraining.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    model = Outputs(theirs.eval())
    batch = torch.export.Dim("batch")
    limit = theirs.config.max_position_embeddings
    length = torch.export.Dim("length", min=2, max=limit)
    traced = sample(theirs.config, 2, min(8, limit), seed=0)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # of the exporter's own insides
        torch.onnx.export(
            model, traced, folder / MODEL, input_names=INPUTS, output_names=OUTPUTS,
            dynamo=True, external_data=False, dynamic_shapes=[{0: batch, 1: length}] * 3,
        )  # fmt: skip
    difference = compare(folder / MODEL, model, sample(theirs.config, 3, limit, seed=1))
    if not difference <= TOLERANCE:
        raise RuntimeError(
            f"logits differ by {difference:.1e} in onnxruntime, over {TOLERANCE:.0e}: the export "
            f"is wrong"
        )
    return difference


def compare(path: Path, model: nn.Module, inputs: tuple[Tensor, Tensor, Tensor]) -> float:
    """The largest difference of any logit at real tokens, onnxruntime against PyTorch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    values = {name: tensor.numpy() for name, tensor in zip(INPUTS, inputs, strict=True)}
    masked, pairs = map(torch.from_numpy, session.run(list(OUTPUTS), values))
    real = inputs[1].bool()
    with torch.no_grad():
        expected, expected_pairs = model(*inputs)
    apart = ((masked - expected)[real], pairs - expected_pairs)
    return max(float(difference.abs().max()) for difference in apart)
