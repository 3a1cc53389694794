"""One peer of the training benchmark, which times passes over the same batches."""

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.data.samples import SIZE, tokenizer_of
from benchmarks.gpu.model import Loss, loss_of, step_of
from model.config import DataConfig, ModelConfig, ObjectiveConfig
from model.encoders import bert
from model.encoders.architectures import build_model
from model.encoders.attention import cpu
from model.encoders.batch import Batch
from model.encoders.encoder import PretrainingModel, prepare_for
from model.huggingface import bert_format
from model.loader.loader import Loader
from model.training import cost
from model.training.device_peak import memory, synchronize
from pipeline.cli.conf_files import CONF
from pipeline.tokenization.wordpiece import SPECIAL


def serve(options: argparse.Namespace) -> None:
    """Answer each line on stdin with the results of one pass."""
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    config = model_config(options)
    batches = [batch.to(device) for batch in read(options)]
    run, inputs = build(options, config, batches, device)
    for item in [*inputs, *inputs, *inputs]:  # warm up: compile, allocate memory and moments
        run(item)
    compiled = compilations()
    lengths = [length for batch in batches for length in batch.cu_seqlens.diff().tolist()]
    for _ in sys.stdin:
        synchronize(device)
        began = time.perf_counter()
        for item in inputs:
            run(item)
        synchronize(device)
        figures = {
            "seconds": time.perf_counter() - began,
            "tokens": sum(lengths),
            "flops": cost.flops(config, lengths),
            "memory": round(memory(device) * 2**30),  # bytes
            "recompiled": compilations() - compiled,
            "device": device_name(device),
        }
        print(json.dumps(figures), flush=True)


def model_config(options: argparse.Namespace, vocab_size: int = SIZE) -> ModelConfig:
    """Return the size in `options`, with their dropout and attention."""
    sizes = OmegaConf.load(CONF / "model" / f"{options.size}.yaml")
    config = ModelConfig(**OmegaConf.to_container(sizes))  # type: ignore[arg-type]
    return dataclasses.replace(
        config,
        architecture="roberta" if "roberta" in str(getattr(options, "worker", "")) else config.architecture,
        vocab_size=vocab_size,
        positions=max(512, options.length),
        dropout=options.dropout,
        attention_dropout=options.dropout,
        attention=options.attention,
    )


def read(options: argparse.Namespace) -> list[Batch]:
    """Return the batches that every peer trains on."""
    vocab = (options.folder / "vocab.txt").read_text().split()
    data = DataConfig(dir=str(options.folder), vocab="v")
    objective = objective_of(model_config(options))
    loader = Loader(data, objective, tokenizer_of(vocab), 0, "train")
    size = options.batch
    return [loader.batch(n * size, size).batches[0] for n in range(options.batches)]


def objective_of(config: ModelConfig) -> ObjectiveConfig:
    """Return the published objective: sentence pairs with BERT, more masks with ModernBERT."""
    if not config.traits.local_layers:  # RoBERTa's peers read the same batches as BERT's
        return ObjectiveConfig(name="nsp")
    return ObjectiveConfig(name="modern", next_sentence=False, mask_share=0.3)


def build(
    options: argparse.Namespace, config: ModelConfig, batches: list[Batch], device: torch.device
) -> tuple[Callable[[Any], None], list[Any]]:
    """Return a function that trains on one item, and the items."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    if options.worker == "engine":
        return engine_step(options, config), batches
    if options.worker.startswith("without-"):
        return ablated(options.worker.removeprefix("without-"), config, device, dtype), batches
    if options.worker.startswith("ours"):
        ours = build_model(config).to(device, dtype)
        prepare_for(device, dtype, ours)
        if "compiled" in options.worker:  # as compute=compile does
            ours.encoder.compile_layers(device, dtype)
        return stepper(ours, partial(loss_of, ours)), batches
    pairs = config.traits.sentence_pairs
    items = [pad(batch, options.length, pairs) for batch in batches]
    if options.worker == "textbook":
        module: nn.Module = Textbook(config).to(device, dtype)
        return stepper(module, module), items
    module = hugging_face(config).to(device, dtype)
    model = torch.compile(module) if "compiled" in options.worker else module
    return stepper(module, lambda item: model(**item).loss), items


def stepper(module: nn.Module, loss: Loss) -> Callable[[Any], None]:
    """Return a function that runs forward, backward and update."""
    return step_of(torch.optim.AdamW(module.train().parameters(), lr=1e-5, fused=True), loss)


def ablated(trick: str, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Callable[[Batch], None]:
    """Return a step of our model without one trick."""
    if trick == "each":
        config = dataclasses.replace(config, attention="padded")
    if trick == "dropout":
        bert.Dropout.forward = lambda self, x: F.dropout(x, self.share, self.training)  # type: ignore
        cpu.drawn = lambda x, share: F.dropout(torch.ones_like(x), share)  # type: ignore
    module = build_model(config).to(device, dtype)

    def loss(batch: Batch) -> Tensor:
        return loss_of(partial(everywhere, module) if trick == "masked-head" else module, batch)

    return stepper(module, loss)


def everywhere(module: PretrainingModel, batch: Batch) -> tuple[Tensor, Tensor]:
    """Run the last layer and the masked-LM head at every position."""
    x = module.encoder(batch)
    pair = module.next_sentence(module.pooler(x[batch.cu_seqlens[:-1]]))
    return module.masked_head(x, module.encoder.embeddings.word.weight)[batch.masked_positions], pair


def engine_step(options: argparse.Namespace, config: ModelConfig) -> Callable[[Any], None]:
    """Return a step as in model/train.py: fp32 master weights, ZeRO stage 1."""
    from model.config import OptimizerConfig, TrainConfig
    from model.distributed import rank_card
    from model.training.engine import Engine, start_world

    settings = TrainConfig(
        out="out",
        precision=options.precision,
        batch_size=options.batch,
        micro_batch=options.batch,
        optimizer=OptimizerConfig(name="adamw"),
        deepspeed={"zero_optimization": {"stage": 1}},
    )
    world = start_world(rank_card.describe(settings, ""), options.threads, 600.0, 600.0)
    engine = Engine(build_model(config), settings, world)

    def step(batch: Batch) -> None:
        engine.backward(loss_of(engine, batch))
        engine.step()

    return step


def hugging_face(config: ModelConfig) -> nn.Module:
    import transformers

    fields = bert_format.their_config(config, list(SPECIAL), torch.float32)
    sizes = transformers.AutoConfig.for_model(**fields, attn_implementation="sdpa")
    module: nn.Module = getattr(transformers, bert_format.names_for(config).pretrained)(sizes)
    return module


class Textbook(nn.Module):
    """Textbook model: PyTorch's own encoder, padded, with scores at every position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.word = nn.Embedding(SIZE, config.hidden)
        self.position = nn.Embedding(config.positions, config.hidden)
        self.segment = nn.Embedding(2, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        layer = nn.TransformerEncoderLayer(
            config.hidden,
            config.heads,
            config.feed_forward,
            config.dropout,
            "gelu",
            config.layer_norm_epsilon,
            batch_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.pooler = nn.Linear(config.hidden, config.hidden)
        self.pair = nn.Linear(config.hidden, 2)
        self.transform = nn.Sequential(nn.Linear(config.hidden, config.hidden), nn.GELU(), nn.LayerNorm(config.hidden))
        self.bias = nn.Parameter(torch.zeros(SIZE))
        self.drop = nn.Dropout(config.dropout)

    def forward(self, item: dict[str, Tensor]) -> Tensor:
        """Return the loss of padded inputs `(B, L)`."""
        ids, valid = item["input_ids"], item["attention_mask"].bool()
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.word(ids) + self.position(positions) + self.segment(item["token_type_ids"])
        x = self.layers(self.drop(self.norm(x)), src_key_padding_mask=~valid)  # (B, L, H)
        scores = F.linear(self.transform(x), self.word.weight, self.bias)  # (B, L, V)
        pair = self.pair(torch.tanh(self.pooler(x[:, 0])))
        loss = F.cross_entropy(scores.flatten(0, 1).float(), item["labels"].flatten())
        return loss + F.cross_entropy(pair.float(), item["next_sentence_label"])


def pad(batch: Batch, length: int, pairs: bool = True) -> dict[str, Tensor]:
    """Return the batch padded, `(B, L)` int64, with segments for models of sentence pairs."""
    lengths = batch.cu_seqlens.diff().long()
    valid = torch.arange(length, device=lengths.device) < lengths[:, None]  # (B, L)
    labels = torch.full_like(batch.input_ids, -100)
    labels[batch.masked_positions] = batch.masked_labels

    def spread(x: Tensor, fill: int) -> Tensor:
        return torch.full(valid.shape, fill, device=x.device).masked_scatter_(valid, x)

    item = {"input_ids": spread(batch.input_ids, 0), "attention_mask": valid.long(), "labels": spread(labels, -100)}
    if pairs:
        item["token_type_ids"] = spread(batch.segment_ids, 0)
        item["next_sentence_label"] = batch.next_sentence_labels
    return item


def product(options: argparse.Namespace) -> float:
    """Measure the FLOP/s of a matrix product: the feed-forward layer's, of a whole batch."""
    torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    config = model_config(options)
    rows = options.batch * options.length
    x = torch.randn(rows, config.hidden, device=device, dtype=dtype)
    weight = torch.randn(config.hidden, config.feed_forward, device=device, dtype=dtype)
    work = 2.0 * rows * config.hidden * config.feed_forward
    repeats = max(3, round((2e14 if device.type == "cuda" else 2e11) / work))
    best = 0.0
    for _ in range(5):
        synchronize(device)
        began = time.perf_counter()
        for _ in range(repeats):
            x @ weight
        synchronize(device)
        best = max(best, repeats * work / (time.perf_counter() - began))
    return best


def compilations() -> int:
    """Return the number of graphs compiled so far."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else os.uname().machine
