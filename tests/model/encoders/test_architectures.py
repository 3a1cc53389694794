"""A further architecture is a few lines: NeoBERT (Le Breton et al. 2025), in the same frame.

RMSNorm, SwiGLU, rotary positions, attention to everything; the decoder is tied as ours are.
"""

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import ModelConfig
from model.encoders import modernbert
from model.encoders.encoder import Architecture, MaskedHead, PretrainingModel
from tests.model.encoders.test_modernbert import ragged, small


def rms_norm(config: ModelConfig) -> nn.RMSNorm:
    return nn.RMSNorm(config.hidden, eps=config.layer_norm_epsilon)


class Layer(modernbert.Layer):
    def __init__(self, config: ModelConfig, number: int) -> None:
        super().__init__(config, number)
        self.window, self.base = None, config.rotary_local
        self.attention_norm, self.feed_norm = rms_norm(config), rms_norm(config)

    def after(self, mixed: Tensor, x: Tensor) -> Tensor:
        x = x + self.mix(mixed)
        gate, value = self.up(self.feed_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Embeddings(modernbert.Embeddings):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.norm = nn.Identity()


NEOBERT = Architecture(
    embeddings=Embeddings,
    layer=Layer,
    norm=rms_norm,
    pooler=modernbert.Pooler,
    masked_head=lambda config: MaskedHead(config, bias=False),
    initialise=modernbert.initialise_parameter,
    pooler_source="masked_head",
)


def test_another_architecture_learns_and_keeps_sequences_apart():
    torch.manual_seed(0)
    model, batch = PretrainingModel(small(), NEOBERT), ragged([20, 31])
    assert {type(m) for m in model.encoder.modules() if "Norm" in type(m).__name__} == {nn.RMSNorm}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch)[0], batch.masked_labels)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    ids = batch.input_ids.clone()
    ids[20:] = 7
    first = int((batch.masked_positions < 20).sum())
    before, after = (
        model(dataclasses.replace(batch, input_ids=i))[0] for i in (batch.input_ids, ids)
    )
    torch.testing.assert_close(before[:first], after[:first])
    assert not torch.allclose(before[first:], after[first:])
