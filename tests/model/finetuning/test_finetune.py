import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification, get_linear_schedule_with_warmup

from benchmarks.model.host_waits import HostWaits
from model.encoders.architectures import build_model
from model.finetuning import loop, saved_model
from model.finetuning.features import UNLABELLED, Samples, TruncationConfig, batch_count, epoch_batches, tokenize
from model.finetuning.heads import HeadConfig
from model.finetuning.sentence_scores import SentenceScorer
from pipeline.common import counter_rng
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece
from tests.model.sizes import small
from tests.support.preparing import vocabulary

WHOLE = TruncationConfig(40)
CPU = torch.device("cpu")
WORDS = [*SPECIAL, *"abcdefgh"]
CONFIG = small(len(WORDS))
RECIPE = loop.FineTuningConfig(batch_size=8, learning_rate=3e-3, epochs=2, seed=3, warmup_share=0.1, weight_decay=0.01)


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory):
    return WordPiece.load(vocabulary(tmp_path_factory.mktemp("vocab"), "abcdefgh"))


def some(wordpiece, rows, seed=0, classes=2):
    """Letters, labelled by whether the first is of the alphabet's first half; or by its place."""
    draw = np.random.default_rng(seed)
    letters = [draw.choice(list("abcdefgh"), draw.integers(1, 12)) for _ in range(rows)]
    labels = ["abcdefgh".index(row[0]) / 2 for row in letters]
    if classes > 1:
        labels = [float(label < 2) for label in labels]
    return tokenize(wordpiece, [" ".join(row) for row in letters], None, labels, WHOLE)


def words_of(ids):
    return " ".join(WORDS[i] for i in ids)


def test_samples_are_framed_as_in_pre_training(wordpiece):
    single = tokenize(wordpiece, ["a b"], None, [1.0], WHOLE)
    assert (words_of(single.ids[0]), single.second.tolist()) == ("[CLS] a b [SEP]", [4])
    pair = tokenize(wordpiece, ["a b", ""], ["c", "d e"], [1.0, 0.0], WHOLE)
    assert words_of(pair.ids[0]) == "[CLS] a b [SEP] c [SEP]"
    assert (words_of(pair.ids[1]), pair.second.tolist()) == ("[CLS] [SEP] d e [SEP]", [4, 2])


def truncated(a, b, room):
    """The loop of Google's run_classifier.py."""
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop()
    return a, b


letters = st.lists(st.sampled_from("abcdefgh"), max_size=12)


@given(letters, letters, st.integers(3, 24))
def test_truncation_is_that_of_the_published_code(wordpiece, a, b, longest):
    made = tokenize(wordpiece, [" ".join(a)], [" ".join(b)], [0.0], TruncationConfig(longest))
    a, b = truncated(list(a), list(b), longest - 3)
    assert words_of(made.ids[0]).split() == ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
    assert made.second[0] == len(a) + 2


@given(st.integers(1, 300), st.integers(1, 9), st.integers(0, 9))
def test_an_epoch_has_every_sample_once_in_full_batches(rows, size, seed):
    ids = [np.zeros(1 + (7 * row) % 13, np.int64) for row in range(rows)]
    samples = Samples(ids, np.ones(rows, np.int64), np.zeros(rows))
    made = list(epoch_batches(samples, size, counter_rng.key(seed, "test")))
    assert sorted(np.concatenate(made).tolist()) == list(range(rows))
    assert len(made) == batch_count(samples, size)
    assert sorted(map(len, made), reverse=True)[:-1] == [size] * (len(made) - 1)


def test_batches_are_random_whatever_the_lengths_and_differ_by_epoch(wordpiece):
    samples = some(wordpiece, 400)
    first, second = (list(epoch_batches(samples, 8, counter_rng.key(0, "test", epoch))) for epoch in (0, 1))
    lengths = np.array([len(ids) for ids in samples.ids])
    within = np.mean([lengths[rows].var() for rows in first])
    assert within == pytest.approx(lengths.var() * 7 / 8, rel=0.1)  # of eight drawn at random
    assert {frozenset(rows.tolist()) for rows in first} != {frozenset(r.tolist()) for r in second}


def by_length(rows, seed):
    """Four classes, each of a letter; those of most texts can be told from their length, too."""
    draw = np.random.default_rng(seed)
    ids, labels = [], []
    for _ in range(rows):
        band = draw.integers(4)
        text = draw.integers(5, 9, 4 + 8 * band + draw.integers(8))
        label = (band + (draw.random() < 0.15)) % 4
        text[draw.integers(len(text))] = 9 + label
        ids.append(np.array([2, *text, 3]))
        labels.append(label)
    return Samples(ids, np.array([len(text) for text in ids]), np.array(labels, np.float64))


def shuffled(folder, train, dev, recipe):
    """The accuracy that transformers' model reaches from the same weights, in a loop as anyone writes it."""
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    steps = recipe.epochs * len(train) // recipe.batch_size
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, eps=1e-6)
    schedule = get_linear_schedule_with_warmup(optimizer, int(recipe.warmup_share * steps), steps)

    def inputs(part, rows):
        ids = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(part.ids[row]) for row in rows.tolist()], True)
        return {"input_ids": ids, "attention_mask": (ids != 0).long()}

    model.train()
    for rows in (rows for _ in range(recipe.epochs) for rows in torch.randperm(len(train)).split(recipe.batch_size)):
        optimizer.zero_grad()
        model(**inputs(train, rows), labels=torch.from_numpy(train.labels[rows]).long()).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        given = model.eval()(**inputs(dev, torch.arange(len(dev)))).logits.argmax(-1)
    return float(np.mean(given.numpy() == dev.labels))


@pytest.mark.slow
def test_what_goes_with_length_is_learnt_as_in_a_shuffled_loop(tmp_path):
    """Batches of equal lengths are of one class each: 0.45 instead of 0.9."""
    size = small(len(WORDS), hidden=32, feed_forward=64, dropout=0.0, attention_dropout=0.0)
    train, dev = by_length(768, 0), by_length(300, 1)
    torch.manual_seed(0)
    weights, source = build_model(size).state_dict(), vocabulary(tmp_path / "vocab", "abcdefgh")
    ours, theirs = [], []
    for seed in range(3):
        recipe = loop.FineTuningConfig(
            **{**vars(RECIPE), "seed": seed, "batch_size": 16, "epochs": 5, "learning_rate": 4e-3}
        )
        model = loop.build(size, weights, HeadConfig("class", 4), seed)
        saved_model.save(tmp_path / str(seed), saved_model.SavedModel(model, []), size, source)
        list(loop.train(model, train, recipe, CPU))
        given = np.stack(loop.predict(model, dev, CPU)).argmax(-1)
        ours.append(np.mean(given == dev.labels))
        theirs.append(shuffled(tmp_path / str(seed), train, dev, recipe))
    assert min(ours) > 0.75, (ours, theirs)
    assert np.mean(ours) == pytest.approx(np.mean(theirs), abs=0.1), (ours, theirs)


def test_a_sample_is_scored_the_same_alone_and_among_others(wordpiece):
    samples = some(wordpiece, 9, classes=1)
    model = loop.build(CONFIG, None, HeadConfig("class", 1), 0)
    together = loop.predict(model, samples, CPU)
    alone = [
        loop.predict(model, Samples([samples.ids[row]], samples.second[[row]], samples.labels[[row]]), CPU)[0]
        for row in range(9)
    ]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-6)


def test_pre_trained_weights_are_taken_and_the_head_is_new():
    torch.manual_seed(7)
    weights = build_model(CONFIG).state_dict()
    model = loop.build(CONFIG, weights, HeadConfig("class", 3), seed=0)
    state = model.state_dict()
    assert state["head.weight"].shape == (3, 16)
    taken = [name for name in state if not name.startswith("head.")]
    assert all(torch.equal(state[name], weights[name]) for name in taken)
    again = loop.build(CONFIG, None, HeadConfig("class", 3), seed=0).state_dict()
    assert not torch.equal(again["pooler.dense.weight"], state["pooler.dense.weight"])


def test_a_new_head_is_not_that_of_which_the_encoder_was_tuned(wordpiece):
    """Else a second fine-tuning begins with the answers of the first, to other classes."""
    weights = build_model(CONFIG).state_dict()
    first, other = (loop.build(CONFIG, weights, HeadConfig("class", 2), seed=0) for _ in range(2))
    assert torch.equal(first.head.weight, other.head.weight)
    list(loop.train(first, some(wordpiece, 16), RECIPE, CPU))
    second = loop.build(CONFIG, weights | first.state_dict(), HeadConfig("class", 2), seed=0)
    assert torch.equal(second.head.weight, first.head.weight), "a head that is given goes on"
    tuned = {name: tensor for name, tensor in first.state_dict().items() if not name.startswith("head.")}
    second = loop.build(CONFIG, weights | tuned, HeadConfig("class", 2), seed=0)
    assert abs(torch.corrcoef(torch.stack([second.head.weight.flatten(), other.head.weight.flatten()]))[0, 1]) < 0.6


def trained(samples, recipe, classes):
    model = loop.build(CONFIG, None, HeadConfig("class", classes), recipe.seed)
    losses = list(loop.train(model, samples, recipe, CPU))
    logits = np.stack(loop.predict(model, samples, CPU))
    return losses, model.state_dict(), logits[:, 0] if classes == 1 else logits.argmax(-1)


def test_two_runs_are_equal_bit_for_bit_and_seeds_differ(wordpiece):
    samples = some(wordpiece, 50)
    losses, state, predicted = trained(samples, RECIPE, 2)
    torch.rand(5)  # whatever was drawn before
    again = trained(samples, RECIPE, 2)
    assert again[0] == losses
    assert all(torch.equal(state[name], again[1][name]) for name in state)
    assert np.array_equal(predicted, again[2])
    other = trained(samples, loop.FineTuningConfig(**{**vars(RECIPE), "seed": 4}), 2)
    assert other[0] != losses


def test_scoring_between_epochs_changes_nothing(wordpiece):
    samples = some(wordpiece, 50)
    model = loop.build(CONFIG, None, HeadConfig("class", 2), RECIPE.seed)
    losses = []
    for loss in loop.train(model, samples, RECIPE, CPU):
        losses.append(loss)
        loop.predict(model, samples, CPU)
    assert losses == trained(samples, RECIPE, 2)[0]


@pytest.mark.parametrize("classes", [1, 2])
def test_classes_and_scores_are_learnt(wordpiece, classes):
    recipe = loop.FineTuningConfig(**{**vars(RECIPE), "epochs": 6, "learning_rate": 1e-2})
    samples = some(wordpiece, 256, classes=classes)
    losses, _, predicted = trained(samples, recipe, classes)
    assert len(losses) == 6
    assert losses[-1] < losses[0] / 2
    if classes == 1:
        assert np.corrcoef(predicted, samples.labels)[0, 1] > 0.8
    else:
        assert (predicted == samples.labels).mean() > 0.85


@pytest.mark.slow
def test_half_precision_goes_the_same_way_and_leaves_whole_weights(wordpiece):
    samples = some(wordpiece, 256)
    recipe = loop.FineTuningConfig(**{**vars(RECIPE), "epochs": 4})
    whole = trained(samples, recipe, 2)[0]
    half, again, _ = trained(samples, loop.FineTuningConfig(**{**vars(recipe), "precision": "bf16"}), 2)
    assert half[0] != whole[0]
    assert half[0] == pytest.approx(whole[0], rel=0.01)
    assert max(half[-1], whole[-1]) < half[0] / 2  # learnt, by another path of rounding
    name = "encoder.layers.0.up.weight"
    assert again[name].dtype == torch.float32
    assert not torch.equal(again[name], again[name].bfloat16().float())  # small steps add up


# Fine-tuning and scoring launch all work of a batch without waiting for a device.


# The attention of fp32 on a GPU.
NO_WAITS_CONFIG = small(30, attention="padded")
CPU, META = torch.device("cpu"), torch.device("meta")
LENGTHS = (7, 3, 12, 5, 9, 4)
ROWS = len(LENGTHS)
POOLED = [("chunks", "mean"), ("largest chunks", "max"), ("attended chunks", "attention")]
FROZEN = HeadConfig("class", 2, frozen=True, layers=[0, -1], mix="weighted", pooling="mean")
HEADS = {
    "classes": (HeadConfig("class", 3), np.arange(ROWS) % 3.0),
    "score": (HeadConfig("class", 1), np.arange(ROWS) / 2.0),
    **{name: (HeadConfig("class", 2, chunks=kind), np.array([0.0, 1.0])) for name, kind in POOLED},
    "choices": (HeadConfig("choice", 3), np.array([2.0, 0.0])),
    "tags": (HeadConfig("tag", 4), [np.array([1] + [UNLABELLED] * (n - 1)) for n in LENGTHS]),
    "answers": (HeadConfig("answer", 2), np.array([[1, 2]] * ROWS)),
    "frozen": (FROZEN, np.arange(ROWS) % 2.0),
}
GROUPS = {"chunks": [0, 2, 6], "largest chunks": [0, 1, 6], "attended chunks": [0, 2, 6], "choices": [0, 3, 6]}


def no_waits_some(name):
    draw = np.random.default_rng(0)
    ids = [draw.integers(5, 30, length) for length in LENGTHS]
    groups = np.array(GROUPS.get(name, []), np.int64)
    return Samples(ids, np.full(ROWS, 2), HEADS[name][1], groups)


def built(name, architecture="bert"):
    size = dataclasses.replace(NO_WAITS_CONFIG, architecture=architecture, dropout=0.0)
    return loop.build(size, None, HEADS[name][0], seed=0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", HEADS)
def test_an_epoch_waits_once_for_its_loss(name, precision):
    recipe = loop.FineTuningConfig(
        batch_size=1, learning_rate=1e-3, epochs=1, seed=0, warmup_share=0.1, weight_decay=0.01, precision=precision
    )
    batches = []
    with HostWaits() as waits:
        epochs = loop.train(built(name), no_waits_some(name), recipe, CPU, lambda: batches.append(1))
        next(epochs)
    assert len(batches) > 1
    assert waits.total == 1, waits.places


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
@pytest.mark.parametrize("name", HEADS)
def test_a_batch_goes_to_the_device_without_a_wait(name, architecture):
    model, samples = built(name, architecture).to(META), no_waits_some(name)
    rows = np.arange(len(samples))
    loop.batch_loss(model, samples, rows, META)  # what is made once is made
    with HostWaits() as waits:
        loss = loop.batch_loss(model, samples, rows, META)
        loss.backward()
    assert loss.device == META
    assert waits.total == 0, waits.places


@pytest.mark.parametrize("name", HEADS)
def test_logits_are_all_that_is_waited_for(name):
    with HostWaits() as waits:
        found = loop.predict(built(name), no_waits_some(name), CPU)
    assert len(found) == len(no_waits_some(name))
    assert waits.total == 0, waits.places  # their copy, one per batch, is none on a CPU


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("words", [False, True])
def test_scores_of_sentences_are_all_that_is_waited_for(words, causal):
    model = build_model(dataclasses.replace(NO_WAITS_CONFIG, causal=causal))
    scorer = SentenceScorer(model, mask=4, device=CPU)
    samples = no_waits_some("classes")
    goes_on = [ids % 3 == 0 for ids in samples.ids] if words else None
    with HostWaits() as waits:
        found = scorer.scores(samples.ids, np.ones(ROWS, np.int64), goes_on)
    assert (found < 0).all()
    assert waits.total == 0, waits.places
