"""Our ModernBERT is transformers' ModernBERT, without padding."""

import pytest
import torch
from torch.nn import functional as F
from transformers import ModernBertConfig
from transformers import ModernBertForMaskedLM as Theirs
from transformers.models.modernbert import modeling_modernbert

from model.config import ModelConfig
from model.encoders.architectures import build_model, parameter_shapes
from model.encoders.encoder import Sequences
from model.encoders.modernbert import MODERNBERT
from model.huggingface.names import NAMES
from pipeline.errors import ConfigError
from tests.model.encoders.test_bert import VOCAB, padded, ragged, size

ENTRIES = ["[PAD]", "[CLS]", "[SEP]"]


def small(**changes):
    sizes = {"layers": 4, "hidden": 16, "heads": 2, "feed_forward": 24, "positions": 1024}
    rest = {"dropout": 0.0, "attention_dropout": 0.0, "layer_norm_epsilon": 1e-5, "architecture": "modernbert"}
    rest["local_window"] = 16
    return ModelConfig(**{"name": "small", "vocab_size": VOCAB, **sizes, **rest, **changes})


def their_config(config):
    said = {theirs: getattr(config, ours) for ours, theirs in NAMES["modernbert"].sizes.items()}
    return ModernBertConfig(**said, **NAMES["modernbert"].settings(config, ENTRIES))


def theirs_like(model, attention):
    """Hugging Face's model of the same size with the same weights."""
    theirs = Theirs(their_config(model.config))
    theirs.config._attn_implementation = attention
    state = {name: p.detach() for name, p in model.named_parameters()}
    missing, unexpected = theirs.load_state_dict(NAMES["modernbert"].their_tensors(state, {}), strict=False)
    assert not unexpected
    assert missing == ["decoder.weight"]
    theirs.tie_weights()
    return theirs.eval()


def differences(model, theirs, batch):
    """The largest of the logits, the loss, and of all gradients as a share of their norm."""
    inputs, real = padded(batch, pairs=False)
    found, (masked, pairs) = theirs(**inputs), model(batch)
    assert pairs is None
    read = found.logits[real][batch.masked_positions]
    ours = F.cross_entropy(masked, batch.masked_labels)
    # Their own loss is of logits in single precision.
    loss = found.loss if read.dtype == torch.float32 else F.cross_entropy(read, batch.masked_labels)
    ours.backward()
    loss.backward()
    apart = {"logits": (masked - read).abs().max().item(), "loss": (ours - loss).abs().item()}
    gradients = {name: p.grad for name, p in model.named_parameters()}
    others = {name: p.grad for name, p in theirs.named_parameters()}
    for name, gradient in NAMES["modernbert"].their_tensors(gradients, {}).items():
        scale = max(float(others[name].norm()), 1e-3)
        apart[name] = float((gradient - others[name]).norm()) / scale
    return apart


def rotate_in_double(q, k, cos, sin, unsqueeze_dim=1):
    """Theirs without its detour by single precision, whatever the model computes in."""
    cos, sin, half = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim), modeling_modernbert
    return q * cos + half.rotate_half(q) * sin, k * cos + half.rotate_half(k) * sin


@pytest.mark.parametrize("name", ["modern-tiny", "modern-base", "modern-large"])
def test_sizes_have_as_many_parameters_as_modernbert(name):
    config = size(name, vocab_size=50368)
    shapes = parameter_shapes(config)
    with torch.device("meta"):
        theirs = Theirs(their_config(config))
        ours = {name: torch.empty(shape) for name, shape in shapes.items()}
    expected = {name: p.shape for name, p in theirs.named_parameters()}
    assert {n: t.shape for n, t in NAMES["modernbert"].their_tensors(ours, {}).items()} == expected
    published = {"modern-base": 149_655_232, "modern-large": 395_881_664}
    count = sum(shape.numel() for shape in shapes.values())
    assert count == published.get(name, count)


@pytest.mark.parametrize("attention", ["each", "padded"])
@pytest.mark.parametrize("lengths", [[1], [17, 96, 33, 2, 1], [16, 17, 24, 25, 9, 8], [400, 3]], ids=str)
def test_everything_equals_hugging_face_in_double_precision(lengths, attention, monkeypatch):
    monkeypatch.setattr(modeling_modernbert, "apply_rotary_pos_emb", rotate_in_double)
    torch.manual_seed(0)
    activation = "gelu_pytorch_tanh" if lengths[0] == 1 else "gelu"
    model = build_model(small(attention=attention, activation=activation, initializer_range=0.3))
    theirs = theirs_like(model.double(), "sdpa").double()
    apart = differences(model, theirs, ragged(lengths))
    assert max(apart.values()) <= 1e-9, apart


TINY = [("modern-tiny", 4, lengths) for lengths in ([17, 300, 33, 2, 60], [1024, 5, 700])]
OTHERS = [("modern-mini", 7, [200, 193, 192, 64]), ("modern-base", 2, [40, 1, 129])]


@pytest.mark.parametrize("attention", ["each", "padded"])
@pytest.mark.parametrize(("name", "layers", "lengths"), [*TINY, *OTHERS])
def test_logits_losses_and_gradients_equal_those_of_hugging_face(name, layers, lengths, attention):
    torch.manual_seed(0)
    config = size(name, layers=layers, attention=attention, initializer_range=0.05)
    model = build_model(config)
    apart = differences(model, theirs_like(model, "sdpa"), ragged(lengths))
    assert apart.pop("logits") <= 1e-5
    assert apart.pop("loss") <= 1e-5
    assert max(apart.values()) <= 1e-4, apart


def test_recomputed_layers_give_the_same_gradients():
    gradients = []
    for recompute in (False, True):
        torch.manual_seed(0)
        model = build_model(small()).double()
        model.encoder.recompute = recompute
        batch = ragged([40, 7])
        F.cross_entropy(model(batch)[0], batch.masked_labels).backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_a_local_layer_sees_half_a_window_to_each_side():
    torch.manual_seed(0)
    # Of its four layers two are local; with one layer that sees all only the last may be local.
    config = small(layers=2, global_every=1000, local_window=8, initializer_range=0.3)
    model = build_model(config).double()
    local = model.encoder.layers[1]
    assert local.window == 4
    assert model.encoder.layers[0].window is None
    x = torch.randn(50, 16, dtype=torch.float64, requires_grad=True)
    seq_info = Sequences(torch.arange(50), torch.tensor([0, 50]).int(), 50, "each")
    local(x, seq_info, None)[20].sum().backward()
    seen = x.grad.abs().sum(1).nonzero().flatten().tolist()
    assert seen == list(range(16, 25))


def test_initialisation_follows_the_seed_and_is_cut_off():
    def state(seed):
        torch.manual_seed(seed)
        return build_model(small(hidden=64)).state_dict()

    first, again, other = state(0), state(0), state(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["encoder.layers.1.up.weight"], other["encoder.layers.1.up.weight"])
    for name, value in first.items():
        if value.dim() < 2:
            assert torch.all(value == float(name.endswith("norm.weight"))), name
            continue
        ends = name.endswith(("mix.weight", "down.weight", "masked_head.dense.weight"))
        deviation = 0.02 / 8**0.5 if ends else 0.02
        assert value.abs().max() <= 2 * deviation, name
        assert value.std() > 0.8 * deviation, name


def test_half_precision_follows_single_precision():
    torch.manual_seed(0)
    model = build_model(size("modern-tiny"))
    batch = ragged([300, 70, 5])
    exact = F.cross_entropy(model(batch)[0], batch.masked_labels)
    exact.backward()
    half = build_model(model.config)
    half.load_state_dict(model.state_dict())
    half.bfloat16()
    loss = F.cross_entropy(half(batch)[0].float(), batch.masked_labels)
    loss.backward()
    torch.testing.assert_close(loss, exact, atol=0.02, rtol=0)
    for (name, p), q in zip(model.named_parameters(), half.parameters(), strict=True):
        assert (p.grad - q.grad).norm() <= 0.1 * p.grad.norm(), name


WRONG = {"architecture": "gpt", "causal": True, "heads": 16, "local_window": 1, "classifier_pooling": "max"}


@pytest.mark.parametrize(("key", "value"), WRONG.items())
def test_sizes_that_cannot_be_are_refused(key, value):
    with pytest.raises(ConfigError, match=rf"model\.{key}"):
        small(**{key: value})


def test_a_pooler_has_what_the_masked_lm_head_can_give_it():
    config = small()
    given = build_model(config).masked_head.state_dict().keys() - {"bias"}  # of the vocabulary's entries
    assert MODERNBERT.pooler(config).state_dict().keys() == given
