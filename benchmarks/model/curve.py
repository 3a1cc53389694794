"""Loss curves of our encoder and Hugging Face's, with the same data, seed, masks and batches.

    python -m benchmarks.model.curve work/sample/prepare work/sample/vocab --out curve.svg

Both start from the same weights and train on the same batches of prepared shards with the same
optimizer in fp32, without dropout, whose random draws would differ. Prints the largest difference
of the smoothed curves and plots both.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import nn

from benchmarks.gpu.model import loss_of
from benchmarks.model.train_worker import model_config, objective_of, pad
from model.config import DataConfig, OptimizerConfig
from model.encoders.architectures import build_model
from model.huggingface import bert_format
from model.loader.loader import Loader
from model.optim.build import build_optimizer
from pipeline.reporting import plots
from pipeline.tokenization.wordpiece import WordPiece


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", type=Path)
    parser.add_argument("vocab", type=Path)
    parser.add_argument("--size", default="mini")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--out", type=Path, default=Path("curve.svg"))
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    wordpiece = WordPiece.load(options.vocab)
    data = DataConfig(dir=str(options.shards), vocab=str(options.vocab))
    options.length, options.dropout, options.attention = 0, 0.0, "auto"
    config = model_config(options, wordpiece.size)
    objective = objective_of(config)
    loader = Loader(data, objective, wordpiece, 0, "train")
    options.length = loader.sequence_length
    ours = build_model(config)
    with tempfile.TemporaryDirectory() as folder:
        bert_format.save(Path(folder), config, ours.state_dict(), options.vocab)
        kind = getattr(transformers, bert_format.names_for(config).pretrained)
        theirs = kind.from_pretrained(folder, dtype=torch.float32)
    curves = np.zeros((2, options.steps))
    seconds = [0.0, 0.0]
    for number, module in enumerate((ours, theirs)):
        module.train()
        optimizer = optimizer_of(module, options.rate)
        began = time.perf_counter()
        for step in range(options.steps):
            batch = loader.batch(step * options.batch, options.batch).batches[0]
            padded = pad(batch, options.length, objective.next_sentence)
            loss = loss_of(ours, batch) if module is ours else theirs(**padded).loss
            loss.backward()
            for group in optimizer.param_groups:
                group["lr"] = options.rate * min(1.0, (step + 1) / 50)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            curves[number, step] = loss.item()
        seconds[number] = time.perf_counter() - began
    show(options, curves, seconds)


def optimizer_of(module: nn.Module, rate: float) -> torch.optim.Optimizer:
    return build_optimizer(module, OptimizerConfig(name="adamw", learning_rate=rate))


def show(options: argparse.Namespace, curves: np.ndarray, seconds: list[float]) -> None:
    """Print the comparison and write the plot."""
    window = min(20, options.steps)
    smooth = np.array([np.convolve(c, np.ones(window) / window, "valid") for c in curves])
    apart = np.abs(smooth[0] - smooth[1]).max(), np.abs(curves[0] - curves[1]).max()
    print(
        f"{options.size}, {options.steps} steps of {options.batch}: last {window} steps' loss "
        f"{smooth[0, -1]:.4f} ours, {smooth[1, -1]:.4f} Hugging Face; largest difference "
        f"{apart[0]:.4f} smoothed, {apart[1]:.4f} of one step; "
        f"{seconds[1] / seconds[0]:.2f} x as fast"
    )
    steps = list(range(1, options.steps + 1))
    names = ("ours", "Hugging Face")
    figure = plots.lines(
        [(name, steps, curve.tolist()) for name, curve in zip(names, curves, strict=True)], "step", "loss"
    )
    options.out.write_text(plots.svg(figure), encoding="utf-8")
    print(options.out)


if __name__ == "__main__":
    main()
