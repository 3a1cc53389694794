"""What only a GPU can show: losses as Hugging Face's, and no wait inside a step."""

import dataclasses

import pytest
import torch

from benchmarks.data.samples import make_shards, make_vocab
from benchmarks.gpu.model import loss_of
from benchmarks.model.train_worker import hugging_face, pad, read
from model.config import ModelConfig
from model.encoders.architectures import build_model
from model.encoders.encoder import prepare_for
from model.huggingface.names import NAMES

CONFIG = ModelConfig(
    name="test", layers=3, hidden=128, heads=2, feed_forward=256, positions=128, dropout=0.0, attention_dropout=0.0
)


def batches(folder):
    from types import SimpleNamespace

    make_vocab(folder)
    make_shards(folder, 64, 1, 128)
    config = dataclasses.replace(CONFIG, vocab_size=30522)
    options = SimpleNamespace(
        folder=folder, batch=16, batches=2, length=128, size="tiny", dropout=0.0, attention="auto"
    )
    return config, read(options)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["auto", "padded"])
def test_losses_and_gradients_are_hugging_faces_on_a_gpu_too(attention, tmp_path):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config, (batch, _) = batches(tmp_path)
    torch.manual_seed(0)
    ours = build_model(dataclasses.replace(config, attention=attention)).to(device)
    theirs = hugging_face(config).to(device)
    state = {NAMES["bert"].their_name(name): tensor for name, tensor in ours.state_dict().items()}
    theirs.load_state_dict(state, strict=False)
    loss = loss_of(ours, batch.to(device))
    expected = theirs(**pad(batch.to(device), 128)).loss
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    loss.backward()
    expected.backward()
    mine = ours.encoder.layers[0].up.weight.grad
    other = theirs.bert.encoder.layer[0].intermediate.dense.weight.grad
    assert (mine - other).norm() < 1e-3 * other.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("compiled", [False, True])
def test_on_a_gpu_a_step_never_waits_for_the_host(tmp_path, dropout, compiled):
    device = torch.device("cuda")
    config, both = batches(tmp_path)
    config = dataclasses.replace(config, dropout=dropout, attention_dropout=dropout)
    model = build_model(config).to(device, torch.bfloat16)
    prepare_for(torch.device("cuda"), torch.bfloat16, model)
    if compiled:
        model.encoder.compile_layers(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    on_device = [batch.to(device) for batch in both]
    for batch in on_device:  # what is made once is made
        loss_of(model, batch).backward()
        optimizer.step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in on_device:
            loss_of(model, batch).backward()
            optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
