"""What `micro_batch=auto` counts with is what the model keeps, counted without its memory."""

import dataclasses
from itertools import pairwise

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from model.config import ModelConfig
from model.encoders.architectures import build_model, parameter_shapes
from model.encoders.batch import Batch
from model.encoders.encoder import prepare_for
from model.training import cost
from model.training.cost import GIB, Setting
from model.training.step_metrics import losses
from tests.model.encoders import test_bert

LENGTH = 128


def config(size):
    return test_bert.size(size, vocab_size=30522, attention="flash")


def setting(size, half=True, recompute=False, **more):
    return Setting(config(size), 2 if half else 4, recompute, 0.15, more.pop("stage", 1), more.pop("ranks", 1))


def kept_bytes(given, tokens):
    """Bytes of all distinct storages, not parameters, that a forward pass saves."""
    dtype = torch.bfloat16 if given.size == 2 else torch.float32
    with torch.device("meta"):
        model = build_model(given.model).to(dtype)
        prepare_for(torch.device("cuda"), torch.bfloat16, model)
        model.encoder.recompute = given.recompute
        each = torch.empty(tokens, dtype=torch.long)
        masked = torch.empty(round(tokens * given.mask_share), dtype=torch.long)
        bounds = torch.empty(tokens // LENGTH + 1, dtype=torch.int32)
        pairs = torch.empty(tokens // LENGTH, dtype=torch.long)
        batch = Batch(each, each, each, bounds, LENGTH, masked, masked, pairs)
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(batch)
    kept[logits[0].untyped_storage()._cdata] = logits[0]  # the loss is made in their place
    return sum(x.untyped_storage().nbytes() for key, x in kept.items() if key not in own)


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("size", ["tiny", "base", "large", "modern-base"])
def test_what_a_token_takes_is_what_the_model_keeps_of_it(size, half):
    """Without dropout, whose mask has one byte an element on a GPU, but more on a meta tensor."""
    given = setting(size, half)
    bare = dataclasses.replace(given.model, dropout=0.0, attention_dropout=0.0)
    bare = dataclasses.replace(given, model=bare)
    tokens = 8 * LENGTH
    more = kept_bytes(bare, 2 * tokens) - kept_bytes(bare, tokens)
    assert more < cost.token_bytes(bare) * tokens < 1.2 * more
    assert cost.token_bytes(given) >= cost.token_bytes(bare)


@pytest.mark.parametrize("size", ["tiny", "base", "large", "modern-base"])
def test_parameters_are_counted(size):
    true = sum(shape.numel() for shape in parameter_shapes(config(size)).values())
    assert cost.parameters(config(size)) == pytest.approx(true, rel=0.03)


@pytest.mark.parametrize("share", [0.15, 0.5, 1.0])
@pytest.mark.parametrize("lengths", [[128], [64, 96, 32]], ids=str)
@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_operations_are_those_that_pytorch_counts(architecture, lengths, share):
    """The published count has no pooler, and all rows of the last layer, of which ours computes those that are read."""
    sizes = {"layers": 2, "hidden": 32, "heads": 2, "feed_forward": 96, "vocab_size": 211, "positions": 128}
    given = ModelConfig(name="x", architecture=architecture, local_window=256, dropout=0.0, **sizes)
    given = dataclasses.replace(given, attention="each", attention_dropout=0.0)
    model, tokens = build_model(given), sum(lengths)
    each = torch.cat([torch.arange(length) for length in lengths])
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    masked, pairs = torch.arange(round(share * tokens)), torch.zeros(len(lengths), dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        batch = Batch(each, torch.zeros_like(each), each, bounds, max(lengths), masked, each[masked], pairs)
        masked_loss, pair_loss, _ = losses(*model(batch), batch)
        (masked_loss + pair_loss).backward()
    bert = architecture == "bert"
    pooled = bert * 6 * len(lengths) * (32**2 + 2 * 32)
    read = [bert + len(set(range(start, stop)) & set(masked.tolist())) for start, stop in pairwise(bounds.tolist())]
    unread = 6 * (tokens - sum(read)) * (2 * 32**2 + (2 if bert else 3) * 32 * 96)
    unread += sum(12 * 32 * length * (length - rows) for length, rows in zip(lengths, read, strict=True))
    expected = cost.flops(given, lengths, len(masked) / tokens) + pooled - unread
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("half", "stage", "ranks", "more", "each"),
    [
        (False, 0, 4, {}, 4 + 4 + 8),
        (False, 1, 1, {}, 4 + 4 + 16),
        (True, 1, 1, {}, 2 + 2 + 4 + 16),
        (True, 1, 4, {}, 2 + 2 + 4 + 4),
        (True, 2, 4, {}, 2 + 0.5 + 4),
        (True, 3, 4, {}, 0.5 + 0.5 + 4),
        (True, 3, 4, {"average": True}, 0.5 + 0.5 + 4 + 1),
        (False, 0, 4, {"average": True}, 4 + 4 + 8 + 4),
        (True, 2, 4, {"offload": True}, 2 + 0.5),
    ],
)
def test_a_parameter_takes_its_weight_gradient_and_moments_divided_by_zero(half, stage, ranks, more, each):
    given = dataclasses.replace(setting("base", half, stage=stage, ranks=ranks), **more)
    assert cost.state_bytes(given) == each * cost.parameters(given.model)


@pytest.mark.parametrize("half", [True, False])
def test_what_fits_leaves_a_tenth_of_the_memory_and_room_for_gradients_of_a_layer(half):
    given, memory = setting("large", half), 20 * 2**30
    widest = (2 if half else 4) * (4 * given.model.hidden + 2 * given.model.feed_forward)
    most = cost.tokens_that_fit(given, memory)
    fixed = cost.state_bytes(given) + 1.5 * 2**30
    taken = [fixed + tokens * (cost.token_bytes(given) + widest) for tokens in (most, most + 1)]
    assert taken[0] <= 0.9 * memory < taken[1]


LARGE = ModelConfig(name="large", layers=24, hidden=1024, heads=16, feed_forward=4096, vocab_size=30522)


def test_count_is_the_published_one():
    layers, h, v, t = 24, 1024, 30522, 128
    published = (72 * layers * h**2 + 12 * layers * h * t + 6 * (h * v + h**2) * 0.15) * t
    assert cost.flops(LARGE, [t]) == pytest.approx(published, rel=1e-6)


def test_a_local_layer_costs_the_pairs_in_sight_and_a_gated_unit_its_third_product():
    sizes = {"layers": 4, "hidden": 16, "heads": 2, "feed_forward": 24, "vocab_size": 50}
    modern = ModelConfig(name="m", architecture="modernbert", local_window=8, **sizes)
    for length in (1, 4, 5, 6, 40):
        seen = sum(abs(i - j) <= 4 for i in range(length) for j in range(length))
        # Layers 0 and 3 see all.
        products = 4 * 16**2 + 3 * 16 * 24
        expected = 4 * 6 * products * length + 12 * 16 * (2 * length**2 + 2 * seen)
        expected += 6 * (16 * 50 + 16**2) * 0.3 * length
        assert cost.flops(modern, [length], 0.3) == pytest.approx(expected)


def test_more_fits_where_there_is_more_room():
    fits = cost.tokens_that_fit
    assert fits(setting("base"), 80 * GIB) == cost.ENOUGH
    assert 2_000 < fits(setting("large"), 16 * GIB) < fits(setting("large"), 40 * GIB)
    assert fits(setting("large"), 16 * GIB) < fits(setting("large", ranks=8), 16 * GIB)
    assert fits(setting("large"), 16 * GIB) < fits(setting("large", recompute=True), 16 * GIB)
    assert fits(setting("large", half=False), 16 * GIB) < fits(setting("large"), 16 * GIB)
    assert fits(setting("large"), 2 * GIB) == 0
