import pytest
import torch
from omegaconf import OmegaConf
from torch.nn import functional as F
from transformers import BertConfig
from transformers import BertForPreTraining as Theirs

from benchmarks.model.train_worker import pad
from model.config import ModelConfig
from model.encoders.architectures import build_model, parameter_shapes
from model.encoders.batch import Batch
from model.huggingface.names import NAMES
from pipeline.cli.conf_files import CONF
from pipeline.errors import ConfigError
from tests.model import sizes

VOCAB = 500


def size(name, **changes):
    loaded = OmegaConf.to_container(OmegaConf.load(CONF / "model" / f"{name}.yaml"))
    return ModelConfig(**{"vocab_size": VOCAB, **loaded, **changes})


def small(**changes):
    return sizes.small(**{"vocab_size": VOCAB, "positions": 64} | changes)


def ragged(lengths, vocab=VOCAB, seed=0):
    """Random tokens; in each sequence about every seventh is masked, never the first unless alone."""
    draw = torch.Generator().manual_seed(seed)
    each = torch.tensor(lengths)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0)
    tokens = int(cu_seqlens[-1])
    position_ids = torch.cat([torch.arange(length) for length in lengths])
    chosen = (position_ids > 0) & (torch.rand(tokens, generator=draw) < 0.15)
    chosen[cu_seqlens[1:] - 1] = True
    masked_positions = chosen.nonzero().flatten()
    return Batch(
        input_ids=torch.randint(1, vocab, (tokens,), generator=draw),
        segment_ids=(2 * position_ids > each.repeat_interleave(each)).long(),
        position_ids=position_ids,
        cu_seqlens=cu_seqlens.int(),
        max_length=max(lengths),
        masked_positions=masked_positions,
        masked_labels=torch.randint(vocab, masked_positions.shape, generator=draw),
        next_sentence_labels=torch.randint(2, (len(lengths),), generator=draw),
    )


def theirs_like(model):
    """Hugging Face's model of the same size with the same weights."""
    said = {theirs: getattr(model.config, ours) for ours, theirs in NAMES["bert"].sizes.items()}
    theirs = Theirs(BertConfig(**said, attn_implementation="eager"))
    state = {NAMES["bert"].their_name(name): p.detach() for name, p in model.named_parameters()}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected
    assert all("decoder" in name for name in missing)
    theirs.tie_weights()
    return theirs.eval()


def padded(batch, pairs=True):
    """The batch as their model reads it, and where its real tokens are."""
    inputs = pad(batch, batch.max_length, pairs)
    return inputs, inputs["attention_mask"].bool()


def loss(model, batch):
    masked, pairs = model(batch)
    return F.cross_entropy(masked, batch.masked_labels) + F.cross_entropy(pairs, batch.next_sentence_labels)


@pytest.mark.parametrize(("name", "parameters"), [("tiny", 4_433_468), ("base", 110_106_428), ("large", 336_226_108)])
def test_published_sizes_have_as_many_parameters_as_bert(name, parameters):
    shapes = parameter_shapes(size(name, vocab_size=30522))
    assert sum(shape.numel() for shape in shapes.values()) == parameters
    with torch.device("meta"):
        config = size(name, vocab_size=30522)
        theirs = Theirs(BertConfig(**{NAMES["bert"].sizes[key]: getattr(config, key) for key in NAMES["bert"].sizes}))
    expected = {name: p.shape for name, p in theirs.named_parameters()}
    assert {NAMES["bert"].their_name(name): shape for name, shape in shapes.items()} == expected


@pytest.mark.parametrize("attention", ["each", "padded"])
@pytest.mark.parametrize(
    ("name", "layers", "activation"), [("tiny", 2, "gelu"), ("mini", 4, "gelu_new"), ("base", 1, "gelu_pytorch_tanh")]
)
def test_logits_losses_and_gradients_equal_those_of_hugging_face(name, layers, activation, attention):
    torch.manual_seed(0)
    config = size(name, layers=layers, attention=attention, activation=activation, initializer_range=0.05)
    model = build_model(config).eval()
    theirs, batch = theirs_like(model), ragged([17, 96, 33, 2, 60])
    inputs, real = padded(batch)
    found, (masked, pairs) = theirs(**inputs), model(batch)
    read = found.prediction_logits[real][batch.masked_positions]
    torch.testing.assert_close(masked, read, atol=1e-5, rtol=0)
    torch.testing.assert_close(pairs, found.seq_relationship_logits, atol=1e-5, rtol=0)

    ours = loss(model, batch)
    torch.testing.assert_close(ours, found.loss, rtol=1e-4, atol=0)
    ours.backward()
    found.loss.backward()
    their_gradients = {name: p.grad for name, p in theirs.named_parameters()}
    for name, parameter in model.named_parameters():
        gradient, expected = parameter.grad, their_gradients[NAMES["bert"].their_name(name)]
        # A key's bias shifts all scores of a query alike: its gradient is zero but for rounding.
        scale = 1.0 if name.endswith("key_bias") else expected.norm()
        assert (gradient - expected).norm() <= 1e-4 * scale, name


@pytest.mark.parametrize("attention", ["each", "padded"])
def test_a_causal_model_is_their_decoder(attention):
    model = build_model(small(causal=True, attention=attention)).double().eval()
    theirs = theirs_like(model).double().eval()
    batch = ragged([12, 2, 30])
    inputs, real = padded(batch)
    with torch.no_grad():
        masked, _ = model(batch)
        found = theirs(**inputs).prediction_logits[real][batch.masked_positions]
    torch.testing.assert_close(masked, found)


def test_initialisation_follows_the_seed_alone():
    def state(seed, **changes):
        torch.manual_seed(seed)
        return build_model(small(**changes)).state_dict()

    first = state(0)
    for again in (state(0), state(0, attention="padded")):
        assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["pooler.dense.weight"], state(1)["pooler.dense.weight"])
    for name, value in first.items():
        if value.dim() > 1:
            assert value.mean().abs() < 0.01, name
            assert 0.01 < value.std() < 0.03, name
        else:
            assert torch.all(value == float(name.endswith("norm.weight"))), name


def test_dropout_is_drawn_from_the_seed_while_training():
    model, batch = build_model(small()).train(), ragged([12, 30])

    def draw(seed):
        torch.manual_seed(seed)
        return model(batch)[0]

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))


@pytest.mark.parametrize(("given", "said"), [({"vocab_size": None}, "vocab_size"), ({"attention": "sdpa"}, "sdpa")])
def test_a_model_without_a_vocabulary_or_a_known_attention_is_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        build_model(small(**given))(ragged([5]))
