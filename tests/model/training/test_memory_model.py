"""What `micro_batch=auto` counts with is what the model keeps, counted without its memory."""

import dataclasses

import pytest
import torch
from omegaconf import OmegaConf
from torch.autograd.graph import saved_tensors_hooks

from model.config import ModelConfig
from model.encoders.architectures import build_model, parameter_shapes
from model.encoders.batch import Batch
from model.encoders.encoder import prepare_for_gpu
from model.training import memory_model
from model.training.memory_model import GIB, Setting
from pipeline.cli.conf_files import CONF

LENGTH = 128


def config(size: str) -> ModelConfig:
    chosen = OmegaConf.to_container(OmegaConf.load(CONF / "model" / f"{size}.yaml"))
    return dataclasses.replace(
        ModelConfig(**chosen),
        vocab_size=30522,
        attention="flash",  # type: ignore[arg-type]
    )


def setting(size: str, half: bool = True, recompute: bool = False, **more) -> Setting:
    return Setting(config(size), half, recompute, 0.15, more.pop("stage", 1), more.pop("ranks", 1))


def kept_bytes(given: Setting, tokens: int) -> int:
    """Bytes of all distinct storages, not parameters, that a forward pass saves."""
    dtype = torch.bfloat16 if given.half else torch.float32
    with torch.device("meta"):
        model = build_model(given.model).to(dtype)
        prepare_for_gpu(model)
        model.encoder.recompute = given.recompute
        each = torch.empty(tokens, dtype=torch.long)
        masked = torch.empty(round(tokens * given.mask_share), dtype=torch.long)
        bounds = torch.empty(tokens // LENGTH + 1, dtype=torch.int32)
        pairs = torch.empty(tokens // LENGTH, dtype=torch.long)
        batch = Batch(each, each, each, bounds, LENGTH, masked, masked, pairs)
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(batch)
    kept[logits[0].untyped_storage()._cdata] = logits[0]  # the loss is made in their place
    return sum(x.untyped_storage().nbytes() for key, x in kept.items() if key not in own)


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("size", ["tiny", "base", "large", "modern-base"])
def test_what_a_token_takes_is_what_the_model_keeps_of_it(size: str, half: bool) -> None:
    """Without dropout, whose mask has one byte an element on a GPU, but more on a meta tensor."""
    given = setting(size, half)
    bare = dataclasses.replace(given.model, dropout=0.0, attention_dropout=0.0)
    bare = dataclasses.replace(given, model=bare)
    tokens = 8 * LENGTH
    more = kept_bytes(bare, 2 * tokens) - kept_bytes(bare, tokens)
    assert more < memory_model.token_bytes(bare) * tokens < 1.2 * more
    assert memory_model.token_bytes(given) >= memory_model.token_bytes(bare)


@pytest.mark.parametrize("size", ["tiny", "base", "large", "modern-base"])
def test_parameters_are_counted(size: str) -> None:
    true = sum(shape.numel() for shape in parameter_shapes(config(size)).values())
    assert memory_model.parameter_count(config(size)) == pytest.approx(true, rel=0.03)


def test_more_fits_where_there_is_more_room() -> None:
    fits = memory_model.tokens_that_fit
    assert fits(setting("base"), 80 * GIB) == memory_model.ENOUGH
    assert 2_000 < fits(setting("large"), 16 * GIB) < fits(setting("large"), 40 * GIB)
    assert fits(setting("large"), 16 * GIB) < fits(setting("large", ranks=8), 16 * GIB)
    assert fits(setting("large"), 16 * GIB) < fits(setting("large", recompute=True), 16 * GIB)
    assert fits(setting("large", half=False), 16 * GIB) < fits(setting("large"), 16 * GIB)
    assert fits(setting("large"), 2 * GIB) == 0
