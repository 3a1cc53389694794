"""Heads give what transformers' give, and pool what they say."""

import dataclasses
import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from model.encoders.architectures import build_model
from model.encoders.batch import Packed
from model.encoders.encoder import prepare_for
from model.finetuning import heads, loop, saved_model
from model.finetuning.features import UNLABELLED, Samples
from model.finetuning.heads import HeadConfig
from model.huggingface import bert_format
from model.huggingface.names import NAMES
from pipeline.errors import InputError
from tests.model import tiny_bert, tiny_modernbert
from tests.model.sizes import small
from tests.support.preparing import vocabulary
from tests.support.refusals import refused

CONFIG = small(30, layers=3)
THEIRS = {theirs: getattr(CONFIG, ours) for ours, theirs in NAMES["bert"].sizes.items()}
CPU = torch.device("cpu")
LENGTHS = (7, 3, 22, 5)  # one is longer than the window of a local layer


def some(labels, groups=()):
    draw = np.random.default_rng(0)
    ids = [draw.integers(5, 30, length) for length in LENGTHS]
    return Samples(ids, np.array([3, 2, 6, 5]), labels, np.array(groups, np.int64))


def padded(samples):
    """The arguments of transformers' models."""
    lengths = torch.tensor(LENGTHS)
    places = torch.arange(int(lengths.max()))
    return {
        "input_ids": torch.nn.utils.rnn.pad_sequence([torch.from_numpy(ids) for ids in samples.ids], batch_first=True),
        "attention_mask": (places < lengths[:, None]).long(),
        "token_type_ids": (places >= torch.from_numpy(samples.second)[:, None]).long(),
    }


@pytest.fixture
def vocab(tmp_path):
    return vocabulary(tmp_path / "vocab", (f"w{number}" for number in range(25)))


def saved(kind, outputs, vocab):
    """Our model, and theirs opened from the folder that ours was written to."""
    ours = loop.build(CONFIG, None, HeadConfig(kind, outputs), seed=1).eval()
    saved_model.save(vocab.parent / kind, saved_model.SavedModel(ours, []), CONFIG, vocab)
    return ours, getattr(transformers, NAMES["bert"].tuned[kind]).from_pretrained(vocab.parent / kind).eval()


OPENERS = {"class": "SequenceClassification", "tag": "TokenClassification", "answer": "QuestionAnswering"}
OUTPUTS = [("class", 3), ("class", 1), ("tag", 4), ("answer", 2), ("choice", 2)]


@pytest.mark.parametrize(("tiny", "pooling"), [(tiny_bert, "cls"), (tiny_modernbert, "cls"), (tiny_modernbert, "mean")])
@pytest.mark.parametrize(("kind", "outputs"), OUTPUTS)
def test_heads_are_those_of_transformers(tmp_path, kind, outputs, tiny, pooling):
    config = dataclasses.replace(tiny.CONFIG, classifier_pooling=pooling)
    vocab = tiny_bert.make_vocabulary(tmp_path / "vocab")
    ours = loop.build(config, tiny.our_state(), HeadConfig(kind, outputs), seed=1).eval()
    saved_model.save(tmp_path / "saved", saved_model.SavedModel(ours, []), config, vocab)
    opener = getattr(transformers, f"AutoModelFor{OPENERS.get(kind, 'MultipleChoice')}")
    theirs, info = opener.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert type(theirs).__name__ == NAMES[config.architecture].tuned[kind]
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    size, again = saved_model.load(tmp_path / "saved")
    assert size.classifier_pooling == pooling
    for name, tensor in ours.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor)

    samples = some(np.zeros(4), [0, 2, 4] if kind == "choice" else ())
    batch = padded(samples)
    if tiny is tiny_modernbert:
        del batch["token_type_ids"]
    if kind == "choice":
        batch = {name: tensor.view(2, 2, -1) for name, tensor in batch.items()}
    with torch.no_grad():
        found = theirs.eval()(**batch)
    logits = loop.predict(ours, samples, CPU)
    expected = torch.stack([found.start_logits, found.end_logits], -1) if kind == "answer" else found.logits
    for row, values in enumerate(logits):
        right = expected[row, : len(values)] if kind in ("tag", "answer") else expected[row]
        np.testing.assert_allclose(values, right, atol=1e-5 if tiny is tiny_modernbert else 1e-6)


def test_the_loss_of_tags_is_that_of_transformers(vocab):
    draw = np.random.default_rng(1)
    labels = [draw.integers(0, 4, length) for length in LENGTHS]
    labels[0][:3] = UNLABELLED
    samples = some(labels)
    ours, theirs = saved("tag", 4, vocab)
    batch = padded(samples)
    target = torch.full(batch["input_ids"].shape, UNLABELLED)
    for row, values in enumerate(labels):
        target[row, : len(values)] = torch.from_numpy(values)
    found = theirs(**batch, labels=target)
    packed, bounds = loop.inputs(samples, np.arange(4), CPU)
    loss = heads.loss_of("tag", ours(packed, bounds), loop.labels_of(samples, np.arange(4), "tag", CPU), packed)
    torch.testing.assert_close(loss, found.loss)


def test_the_loss_of_answers_is_that_of_transformers(vocab):
    labels = np.array([[2, 3], [0, 0], [11, 11], [1, 4]])
    samples = some(labels)
    ours, theirs = saved("answer", 2, vocab)
    batch = padded(samples)
    found = theirs(**batch)
    packed, bounds = loop.inputs(samples, np.arange(4), CPU)
    logits = ours(packed, bounds)
    real = batch["attention_mask"].bool()
    masked = [x.masked_fill(~real, -torch.inf) for x in (found.start_logits, found.end_logits)]
    expected = sum(
        torch.nn.functional.cross_entropy(x, torch.from_numpy(labels[:, side])) for side, x in enumerate(masked)
    )
    torch.testing.assert_close(heads.loss_of("answer", logits, torch.from_numpy(labels), packed), expected / 2)


@pytest.mark.parametrize("kind", ["mean", "max", "attention"])
def test_chunks_are_pooled_as_said(kind):
    config = HeadConfig("class", 3, chunks=kind)
    model = loop.build(CONFIG, None, config, seed=1).eval()
    grouped = some(np.zeros(2), groups=[0, 1, 4])
    found = np.stack(loop.predict(model, grouped, CPU))
    with torch.no_grad():
        batch, _ = loop.inputs(grouped, np.arange(2), CPU)
        first = model.encoder(batch, batch.cu_seqlens[:-1])
        vectors = model.pooler(first)
        several = vectors[1:]
        if kind == "mean":
            pooled = several.mean(0)
        elif kind == "max":
            pooled = several.amax(0)
        else:
            pooled = model.attention(several).softmax(0).T @ several
        expected = model.head(torch.stack([vectors[0], pooled.reshape(-1)]))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(("mix", "pooling"), [("concat", "cls"), ("mean", "max"), ("weighted", "mean")])
def test_a_frozen_encoder_stays_and_its_layers_are_mixed_as_transformers_has_them(mix, pooling, vocab):
    torch.manual_seed(3)
    weights = build_model(CONFIG).state_dict()
    head = HeadConfig("class", 2, frozen=True, layers=[0, -1], mix=mix, pooling=pooling)
    model = loop.build(CONFIG, weights, head, seed=1)
    samples = some(np.array([0.0, 1.0, 1.0, 0.0]))
    recipe = loop.FineTuningConfig(
        batch_size=2, learning_rate=1e-2, epochs=2, seed=0, warmup_share=0.1, weight_decay=0.01
    )
    before = model.head.weight.clone()
    list(loop.train(model, samples, recipe, CPU))
    assert not torch.equal(model.head.weight, before)
    state = model.state_dict()
    assert all(torch.equal(state[name], weights[name]) for name in state if "encoder" in name)

    bare = loop.build(CONFIG, weights, HeadConfig("tag", 2), seed=1)
    saved_model.save(vocab.parent / "bare", saved_model.SavedModel(bare, []), CONFIG, vocab)
    theirs = transformers.BertModel.from_pretrained(vocab.parent / "bare").eval()
    with torch.no_grad():
        hidden = theirs(**padded(samples), output_hidden_states=True).hidden_states
        parts = [hidden[0], hidden[-1]]
        if mix == "weighted":
            shares = model.shares.softmax(0)
            x = shares[0] * parts[0] + shares[1] * parts[1]
        else:
            x = torch.cat(parts, -1) if mix == "concat" else (parts[0] + parts[1]) / 2
        rows = [x[row, :length] for row, length in enumerate(LENGTHS)]
        choose = {"cls": lambda r: r[0], "mean": lambda r: r.mean(0), "max": lambda r: r.amax(0)}
        expected = model.head(torch.stack([choose[pooling](row) for row in rows]))
    np.testing.assert_allclose(np.stack(loop.predict(model, samples, CPU)), expected, atol=1e-5)


def test_what_is_no_fine_tuned_model_is_refused_and_outputs_that_are_scores_too(vocab):
    transformers.BertModel(transformers.BertConfig(**THEIRS)).save_pretrained(vocab.parent / "bare")
    path = vocab.parent / "bare" / "config.json"
    for named in (["BertModel"], ["BertModel", "BertForMaskedLM"]):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"architectures": named}))
        with refused(InputError, "BertModel", path=str(vocab.parent / "bare")):
            saved_model.load(vocab.parent / "bare")
    config = transformers.BertConfig(**THEIRS, num_labels=3, problem_type="regression")
    transformers.BertForSequenceClassification(config).save_pretrained(vocab.parent / "scores")
    with refused(InputError, "regression", path=str(vocab.parent / "scores")):
        saved_model.load(vocab.parent / "scores")


@pytest.mark.parametrize("names", ["abc", "a"])
def test_the_loss_of_several_labels_is_that_of_transformers(vocab, names):
    labels = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], np.float64)[:, : len(names)]
    ours = loop.build(CONFIG, None, HeadConfig("class", len(names), several=True), seed=1).eval()
    saved_model.save(vocab.parent / "several", saved_model.SavedModel(ours, [*names]), CONFIG, vocab)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(vocab.parent / "several").eval()
    assert theirs.config.problem_type == "multi_label_classification"
    assert json.loads((vocab.parent / "several" / "config.json").read_text())["num_labels"] == len(names)
    expected = theirs(**padded(some(labels)), labels=torch.from_numpy(labels).float()).loss
    torch.testing.assert_close(loop.batch_loss(ours, some(labels), np.arange(4), CPU), expected)
    found = saved_model.load(vocab.parent / "several")[1]
    assert (found.model.config.several, found.labels) == (True, [*names])


@pytest.mark.parametrize("kind", ["class", "tag"])
def test_the_weights_of_classes_are_those_of_pytorch(kind):
    weights, draw = [0.5, 3.0, 1.0], np.random.default_rng(1)
    labels = np.array([0.0, 2, 1, 0]) if kind == "class" else [draw.integers(0, 3, size) for size in LENGTHS]
    plain, weighted = (loop.build(CONFIG, None, HeadConfig(kind, 3, weights=w), seed=1).eval() for w in (None, weights))
    logits = torch.from_numpy(np.vstack(loop.predict(plain, some(labels), CPU)))
    truth = torch.from_numpy(np.concatenate(labels) if kind == "tag" else labels).long()
    expected = torch.nn.functional.cross_entropy(logits, truth, torch.tensor(weights))
    torch.testing.assert_close(loop.batch_loss(weighted, some(labels), np.arange(4), CPU), expected)


def test_scores_are_learnt_and_exported_whatever_their_scale(vocab):
    plain = np.array([0.1, 0.9, 0.4, 0.6])
    losses, given = [], []
    for labels in (plain, 50_000 + 10_000 * plain):
        head = HeadConfig("class", 1, scale=(float(labels.mean()), float(labels.std())))
        ours = loop.build(CONFIG, None, head, seed=1)
        recipe = loop.FineTuningConfig(
            batch_size=2, learning_rate=1e-2, epochs=3, seed=0, warmup_share=0, weight_decay=0
        )
        losses.append(list(loop.train(ours, some(labels), recipe, CPU)))
        given.append(np.stack(loop.predict(ours, some(labels), CPU))[:, 0])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    np.testing.assert_allclose(50_000 + 10_000 * given[0], given[1], rtol=1e-5)
    saved_model.save(vocab.parent / "score", saved_model.SavedModel(ours, []), CONFIG, vocab)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(vocab.parent / "score").eval()
    with torch.no_grad():
        np.testing.assert_allclose(theirs(**padded(some(plain))).logits[:, 0], given[1], rtol=1e-5)
    opened = saved_model.load(vocab.parent / "score")[1].model
    np.testing.assert_allclose(np.stack(loop.predict(opened, some(plain), CPU))[:, 0], given[1], rtol=1e-5)
    assert (theirs.config.label_mean, theirs.config.label_deviation) == pytest.approx(head.scale)
    assert theirs.config.sentence_transformers == {"activation_fn": "torch.nn.Identity"}, "no sigmoid of a score"


@pytest.mark.parametrize("kind", ["class", "choice", "tag", "answer"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_rows_that_pad_products_of_bf16_reach_no_head(kind, pooling):
    config = dataclasses.replace(CONFIG, architecture="modernbert", classifier_pooling=pooling, local_window=8)
    ours = loop.build(config, None, HeadConfig(kind, 2), seed=1).eval()
    starts = torch.tensor([0, *LENGTHS]).cumsum(0)
    tokens = int(starts[-1])
    ids = torch.arange(tokens) % 25 + 5
    places = torch.cat([torch.arange(length) for length in LENGTHS])
    arguments = (Packed(ids, torch.zeros_like(ids), places, starts.int(), max(LENGTHS)), None)
    wanted = ours(*arguments)
    prepare_for(torch.device("cpu"), torch.bfloat16, ours)
    assert tokens % ours.encoder.multiple
    torch.testing.assert_close(ours(*arguments), wanted)


ODD = [({"id2label": names}, "id2label") for names in ({"0": "a", "1": "a"}, {"2": "c"}, {"a": "x"}, ["a", "b"])]


@pytest.mark.parametrize(("settings", "message"), [*ODD, ({"is_decoder": True}, "causal"), ({}, "pooler")])
def test_a_tuned_model_that_would_answer_otherwise_is_refused(vocab, settings, message):
    folder = vocab.parent / f"odd-{len(str(settings))}"
    model = loop.build(CONFIG, None, HeadConfig("class", 2), seed=1)
    saved_model.save(folder, saved_model.SavedModel(model, []), CONFIG, vocab)
    config, weights = folder / "config.json", folder / "model.safetensors"
    config.write_text(json.dumps(json.loads(config.read_text()) | settings))
    if not settings:
        save_file({name: t for name, t in load_file(weights).items() if "pooler" not in name}, weights)
    with pytest.raises(InputError, match=message):
        saved_model.load(folder)


def test_a_classifier_begins_with_the_masked_lm_heads_transform():
    state = tiny_modernbert.our_state()
    built = loop.build(tiny_modernbert.CONFIG, state, HeadConfig("class", 2), seed=1).state_dict()
    assert torch.equal(built["pooler.dense.weight"], state["masked_head.dense.weight"])
    fresh = loop.build(tiny_modernbert.CONFIG, None, HeadConfig("class", 2), seed=1).state_dict()
    assert not torch.equal(fresh["pooler.dense.weight"], state["masked_head.dense.weight"])


def test_a_frozen_encoder_gives_normalised_states():
    state = tiny_modernbert.our_state()
    head = HeadConfig("class", 2, frozen=True, layers=[0, -1], mix="concat", pooling="mean")
    model = loop.build(tiny_modernbert.CONFIG, state, head, seed=1).eval()
    batch, _ = loop.inputs(some(np.zeros(4)), np.arange(4), CPU)
    first, last = model.features(batch).split(16, dim=1)
    torch.testing.assert_close(last, model.encoder(batch))
    assert first.shape == last.shape == (sum(LENGTHS), 16)


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
@pytest.mark.parametrize("kind", ["class", "tag"])
def test_classes_of_a_kept_head_are_matched_by_name(vocab, kind, architecture):
    size = dataclasses.replace(CONFIG, architecture=architecture)
    kept = loop.build(size, None, HeadConfig(kind, 3), seed=1)
    saved_model.save(vocab.parent / "kept", saved_model.SavedModel(kept, ["no", "Maybe", "yes"]), size, vocab)
    read, weights, _, others = bert_format.load(vocab.parent / "kept")
    head = saved_model.head_of(vocab.parent / "kept", read, others, kind, ["yes", "maybe", "never"])
    built = loop.build(size, weights | head, HeadConfig(kind, 3), seed=1)
    assert torch.equal(built.head.weight[:2], kept.head.weight[[2, 1]])
    assert torch.equal(built.head.bias[:2], kept.head.bias[[2, 1]])
    assert built.head.weight.isfinite().all()
    assert not any(torch.equal(built.head.weight[2], row) for row in kept.head.weight)
    for other, labels in ((kind, ["a", "b"]), (kind, []), ("tag" if kind == "class" else "class", ["no", "yes"])):
        assert saved_model.head_of(vocab.parent / "kept", read, others, other, labels) == {}


def test_classes_that_differ_in_capitals_stay_apart(vocab):
    kept = loop.build(CONFIG, None, HeadConfig("class", 3), seed=1)
    saved_model.save(vocab.parent / "kept", saved_model.SavedModel(kept, ["a", "A", "b"]), CONFIG, vocab)
    others = bert_format.load(vocab.parent / "kept")[3]
    head = saved_model.head_of(vocab.parent / "kept", CONFIG, others, "class", [*"BAa"])
    assert torch.equal(head["head.bias"], kept.head.bias[[2, 1, 0]])


def test_a_head_of_scores_goes_on_as_it_was_learnt(vocab):
    kept = loop.build(CONFIG, None, HeadConfig("class", 1, scale=(5e4, 1e4)), seed=1)
    saved_model.save(vocab.parent / "kept", saved_model.SavedModel(kept, []), CONFIG, vocab)
    size, weights, _, others = bert_format.load(vocab.parent / "kept")
    head = saved_model.head_of(vocab.parent / "kept", size, others, "class", [])
    built = loop.build(size, weights | head, HeadConfig("class", 1, scale=(3.0, 1.0)), seed=2)
    torch.testing.assert_close(built.head.weight, kept.head.weight)
    torch.testing.assert_close(built.head.bias, kept.head.bias, atol=1e-6, rtol=1e-4)
    assert saved_model.head_of(vocab.parent / "kept", size, others, "class", ["no", "yes"]) == {}


@pytest.mark.parametrize("kind", ["answer", "choice"])
def test_a_head_whose_outputs_have_one_meaning_goes_on(vocab, kind):
    kept, _ = saved(kind, 2, vocab)
    size, weights, _, others = bert_format.load(vocab.parent / kind)
    head = saved_model.head_of(vocab.parent / kind, size, others, kind, [])
    assert torch.equal(loop.build(CONFIG, weights | head, HeadConfig(kind, 2), seed=1).head.weight, kept.head.weight)
