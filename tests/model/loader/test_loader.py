"""The loader: every sample once an epoch, and the same batches however they are cut."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import DataConfig, ObjectiveConfig
from model.loader.loader import Loader
from pipeline.errors import ConfigError, InputError
from pipeline.shards import ShardInfo, write_shard
from tests.model.loader.test_masking import CLS, SEP, UNK, tokenizer
from tests.support.examples import examples
from tests.support.refusals import refused

TOKENIZER = tokenizer(pieces=35)
VOCAB = TOKENIZER.vocab
INFO = ShardInfo(split="train", pairs="nsp", tokenizer="f" * 64, vocab_size=len(VOCAB), sequence_length=32, seed=0)
ROWS = (13, 1, 30, 22, 9)
TENSORS = ("input_ids", "segment_ids", "position_ids", "masked_labels", "next_sentence_labels")


def pieces_go_on(values):
    return values >= 65


def write(folder, rows=ROWS, split="train", seed=0, longest=32, goes_on=pieces_go_on, **info):
    """Random shards; returns (A, B, is_random_next) of every row."""
    draw = np.random.default_rng(seed)
    fields = {"pairs": "nsp", "tokenizer": "f" * 64, "vocab_size": len(VOCAB), "seed": 0} | info
    samples = []
    for number, count in enumerate(rows):
        a_len = draw.integers(1, longest // 2 - 1, count)
        b_len = draw.integers(1, longest // 2 - 1, count)
        if fields["pairs"] == "none":
            b_len[:] = 0
        offsets = np.cumsum([0, *(a_len + b_len)])
        values = draw.integers(5, len(VOCAB), offsets[-1])
        values[draw.random(len(values)) < 0.05] = UNK
        random_next = (draw.random(count) < 0.5) & (b_len > 0)
        name = f"{split}-{number:05d}-of-{len(rows):05d}.arrow"
        shard = ShardInfo(split=split, sequence_length=longest, **fields)
        stored = shard.marked(values, goes_on(values))
        write_shard(folder / name, shard, stored, offsets, a_len, random_next)
        for row in range(count):
            part = values[offsets[row] : offsets[row + 1]]
            samples.append((tuple(part[: a_len[row]]), tuple(part[a_len[row] :]), bool(random_next[row])))
    return samples


def loader(*folders, split="train", seed=0, window_rows=25, weights=(), tokenizer=TOKENIZER, **objective):
    first, *more = map(str, folders)
    data = DataConfig(dir=first, more=more, weights=list(weights), vocab="v", window_rows=window_rows)
    return Loader(data, ObjectiveConfig(name="test", **objective), tokenizer, seed, split)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("shards")
    write(place)
    write(place, (11, 6), "validation", seed=1)
    return place


def restored(batch):
    """(A, B, is_random_next) of every sequence, with the masked tokens put back."""
    ids = batch.input_ids.clone()
    ids[batch.masked_positions] = batch.masked_labels
    samples = []
    for row in range(len(batch.cu_seqlens) - 1):
        span = slice(int(batch.cu_seqlens[row]), int(batch.cu_seqlens[row + 1]))
        tokens, segments = ids[span], batch.segment_ids[span]
        assert (tokens[0], tokens[-1]) == (CLS, SEP)
        assert (batch.position_ids[span] == torch.arange(len(tokens))).all()
        a, b = tokens[segments == 0], tokens[segments == 1]
        assert a[-1] == SEP
        label = bool(batch.next_sentence_labels[row])
        samples.append((tuple(a[1:-1].tolist()), tuple(b[:-1].tolist()), label))
    return samples


def join(batches):
    """Batches end to end, as comparable tensors."""
    shift = np.cumsum([0, *(len(batch.input_ids) for batch in batches)])
    whole = {name: torch.cat([getattr(batch, name) for batch in batches]) for name in TENSORS}
    whole["masked_positions"] = torch.cat(
        [batch.masked_positions + int(s) for batch, s in zip(batches, shift, strict=False)]
    )
    whole["lengths"] = torch.cat([batch.cu_seqlens.diff() for batch in batches])
    return whole


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("judged", [True, False])
def test_a_sample_is_cls_a_sep_b_sep_for_every_seed_of_validation(tmp_path, judged):
    written = write(tmp_path, split="validation", pairs="nsp" if judged else "none")
    made = (loader(tmp_path, split="validation", seed=seed, next_sentence=judged) for seed in (0, 1))
    one, other = (each.batch(0, sum(ROWS)).batches for each in made)
    assert (restored(one[0]), one[0].segment_ids.any()) == (written, judged)
    assert same(join(one), join(other))


def test_dtypes_and_shapes_are_the_batch_contract(folder):
    batch = loader(folder).batch(0, 16).batches[0]
    for name in (*TENSORS, "masked_positions"):
        assert getattr(batch, name).dtype == torch.int64
    assert batch.cu_seqlens.dtype == torch.int32
    lengths = batch.cu_seqlens.diff()
    assert batch.max_length == lengths.max()
    assert len(lengths) == len(batch.next_sentence_labels) == 16
    assert lengths.sum() == len(batch.input_ids)


@pytest.mark.parametrize("window_rows", [1, 25, 10**6])
def test_every_sample_once_an_epoch_in_another_order(tmp_path, window_rows):
    """A batch may cross the end of an epoch."""
    written = sorted(write(tmp_path))
    made = loader(tmp_path, window_rows=window_rows)
    assert made.samples == len(written) == 75
    samples = [sample for start in range(0, 300, 20) for sample in restored(made.batch(start, 20).batches[0])]
    epochs = [samples[start : start + 75] for start in range(0, 300, 75)] + [restored(made.batch(750, 75).batches[0])]
    assert all(sorted(epoch) == written for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 5


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """A second folder, of longer sequences and fewer."""
    place = tmp_path_factory.mktemp("books")
    write(place, (8, 5), seed=2, longest=40)
    write(place, (7,), "validation", seed=3, longest=40)
    return place


@given(st.integers(0, 10**6), st.integers(1, 60), st.booleans(), st.sampled_from([None, (), (3, 1), (1, 2.5)]))
@settings(max_examples=examples(90), deadline=None)
def test_the_union_is_the_same_for_every_cut(folder, books, start, count, whole_word, weights):
    """Also on resuming, where every loader here starts cold at `start`, and for a mixture of folders."""
    places, more = [folder, books][: 2 - (weights is None)], {"weights": weights or (), "whole_word": whole_word}
    whole = loader(*places, **more).batch(start, count)
    expected = join(whole.batches)
    for world in (1, 2, 3, 4):
        for micro_batch in (1, 3, 64):
            made = loader(*places, **more)
            ranks = [made.batch(start, count, r, world, micro_batch) for r in range(world)]
            assert same(join([batch for rank in ranks for batch in rank.batches]), expected)
            assert len({len(rank.batches) for rank in ranks}) == 1
            for rank in ranks:
                assert (rank.masked, rank.sequences) == (len(expected["masked_positions"]), count)
                assert len(rank.batches) == math.ceil(math.ceil(count / world) / micro_batch)


def test_micro_batches_cost_the_same(folder):
    parts = [loader(folder).batch(0, 64, rank, 2, 8).batches for rank in (0, 1)]
    tokens = [len(batch.input_ids) for part in parts for batch in part]
    longest = loader(folder).sequence_length
    assert len(tokens) == 8
    assert max(tokens) - min(tokens) <= 2 * longest


@given(st.integers(1, 300), st.integers(1, 9), st.integers(2, 40))
@settings(max_examples=examples(50), deadline=None)
def test_no_micro_batch_is_empty_where_there_are_enough_samples(folder, count, world, micro_batch):
    if count < world:
        count += world
    made = loader(folder)
    for rank in (0, world - 1):
        batches = made.batch(0, count, rank, world, micro_batch).batches
        assert all(len(batch.next_sentence_labels) for batch in batches)


def test_with_fewer_samples_than_ranks_some_get_an_empty_batch(folder):
    parts = [loader(folder).batch(0, 1, rank, 2).batches for rank in (0, 1)]
    assert sorted(len(part[0].next_sentence_labels) for part in parts) == [0, 1]
    empty = min((part[0] for part in parts), key=lambda batch: len(batch.input_ids))
    assert empty.cu_seqlens.tolist() == [0]
    assert empty.max_length == len(empty.masked_positions) == 0


def test_a_loader_of_local_files_neither_waits_nor_removes(folder):
    made = loader(folder)
    made.source.close()
    made.source.remove()
    assert made.source.failure is None
    assert made.batch(0, 75).sequences == 75


def test_masks_change_with_the_epoch_and_the_order_with_the_seed(folder):
    def masks_by_sample(start):
        batch = loader(folder).batch(start, 75).batches[0]
        edges = torch.searchsorted(batch.masked_positions, batch.cu_seqlens.long())
        places = batch.position_ids[batch.masked_positions]
        return {
            sample: tuple(places[edges[row] : edges[row + 1]].tolist()) for row, sample in enumerate(restored(batch))
        }

    first, second = masks_by_sample(0), masks_by_sample(75)
    assert sum(first[sample] != second[sample] for sample in first) > len(first) / 2
    one, other = (loader(folder, seed=seed).batch(0, 75).batches[0] for seed in (0, 1))
    assert restored(one) != restored(other)


def test_a_row_of_unknown_tokens_has_nothing_to_predict(tmp_path):
    values, offsets = np.array([UNK, UNK, 7, UNK]), np.array([0, 2, 4])
    path = tmp_path / "train-00000-of-00001.arrow"
    write_shard(path, INFO, values, offsets, np.array([1, 1]), np.array([False, True]))
    found = loader(tmp_path).batch(0, 2)
    assert (found.masked, found.batches[0].masked_labels.tolist()) == (1, [7])
    write_shard(path, INFO, values[:2], offsets[:2], np.array([1]), np.array([False]))
    assert loader(tmp_path).most_frequent_shares(1) == (0, 1)


def test_the_most_frequent_token_and_class_of_the_samples_that_are_asked_for(tmp_path):
    samples = write(tmp_path, split="validation")
    for count in (1, 7, len(samples)):
        tokens = [token for a, b, _ in samples[:count] for token in a + b if token >= 5]
        random = np.mean([random for _, _, random in samples[:count]])
        expected = np.bincount(tokens).max() / len(tokens), max(random, 1 - random)
        assert loader(tmp_path, split="validation").most_frequent_shares(count) == pytest.approx(expected)


def anything_goes_on(values):
    return np.random.default_rng(int(values.sum())).random(len(values)) < 0.5


@pytest.mark.parametrize("objective", [{}, {"predict": "next", "next_sentence": False}])
def test_where_words_are_not_asked_for_their_marks_are_air(tmp_path, objective):
    for name, words in (("plain", None), ("marked", "jieba")):
        (tmp_path / name).mkdir()
        write(tmp_path / name, goes_on=anything_goes_on, words=words)
    plain, marked = (loader(tmp_path / name, **objective) for name in ("plain", "marked"))
    assert same(join(plain.batch(3, 60).batches), join(marked.batch(3, 60).batches))
    assert plain.most_frequent_shares(20) == marked.most_frequent_shares(20)


@pytest.mark.parametrize("size", [len(VOCAB), 40_000])
def test_folders_with_and_without_marks_mix(tmp_path, size):
    """The vocabulary marks what is not marked; with 40,000 entries, marks make ids wider."""
    names = ("plain", "same", "marked")
    for name in names:
        (tmp_path / name).mkdir()
        write(tmp_path / name, words="jieba" if name == "marked" else None, vocab_size=size)
    tokenizer = SimpleNamespace(**vars(TOKENIZER) | {"vocab": VOCAB + ["w"] * (size - len(VOCAB))})
    one, other = (
        loader(tmp_path / "plain", tmp_path / name, tokenizer=tokenizer, whole_word=True) for name in ("same", "marked")
    )
    assert same(join(one.batch(0, 150).batches), join(other.batch(0, 150).batches))


def cut_short(folder):
    write(folder)
    broken = folder / "train-00002-of-00005.arrow"
    broken.write_bytes(broken.read_bytes()[:-100])


def one_row(folder, *ids):
    path = folder / "train-00000-of-00001.arrow"
    write_shard(path, INFO, np.array(ids), np.array([0, len(ids)]), np.array([1]), np.array([True]))


FAULTS = {
    r"train.*pipeline\.prepare": lambda _: None,
    "validation": lambda folder: write(folder, (0, 0), "validation"),
    "train-00002": cut_short,
    "eeeeeeeeeeee": lambda folder: write(folder, tokenizer="e" * 64),
    r"train-00000.*vocabulary": lambda folder: one_row(folder, 5, 100),
}


@pytest.mark.parametrize("named", FAULTS)
def test_shards_that_cannot_be_are_named(tmp_path, named):
    FAULTS[named](tmp_path)
    with pytest.raises(InputError, match=named):
        loader(tmp_path, split="validation" if named == "validation" else "train")


@pytest.mark.parametrize(("a", "b"), [(31, 0), (29, 1), (15, 15)])
def test_a_row_that_is_too_long(tmp_path, a, b):
    path = tmp_path / "train-00000-of-00001.arrow"
    for more in (0, 1):
        tokens = a + b - 1 + more
        write_shard(path, INFO, np.full(tokens, 7), np.array([0, tokens]), np.array([tokens - b]), np.array([False]))
        if more:
            with refused(InputError, "lengths", path=str(path)):
                loader(tmp_path)
        else:
            loader(tmp_path)


@pytest.mark.parametrize(
    ("pairs", "judged", "held"),
    [("none", "nsp", "have no sentence pairs"), ("sop", "nsp", "have sop"), ("nsp", "sop", "have nsp")],
)
def test_the_pairs_that_are_judged_are_needed(tmp_path, pairs, judged, held):
    write(tmp_path, pairs=pairs)
    with pytest.raises(ConfigError, match=held):
        loader(tmp_path, pairs=judged)
    loader(tmp_path, pairs=judged, next_sentence=False)


def test_a_mixture_gives_each_folder_its_share_and_each_sample_in_turn(tmp_path):
    places = [tmp_path / name for name in "ab"]
    for place in places:
        place.mkdir()
    few, many = write(places[0], (5, 4), seed=5), write(places[1], (20, 30), seed=6)
    made = loader(*places, weights=(3, 1))
    samples = restored(made.batch(0, 120).batches[0])
    assert sum(sample in few for sample in samples) == 90
    seen = [sample for sample in samples if sample in many]
    assert len(set(seen)) == 30  # none of the 50 twice
    again = [sample for sample in samples if sample in few]
    for epoch in range(10):
        assert sorted(again[9 * epoch : 9 * epoch + 9]) == sorted(few)
    together = restored(loader(*places).batch(0, 59).batches[0])
    assert sorted(together) == sorted(few + many)


def test_held_out_samples_of_a_mixture_are_from_all_folders(folder, books):
    held_out = loader(folder, books, split="validation", weights=(1, 1))
    assert held_out.samples == 14
    samples = restored(held_out.batch(0, 14).batches[0])
    alone = restored(loader(books, split="validation").batch(0, 7).batches[0])
    assert ([sample for sample in samples if sample in alone], len(set(samples))) == (alone, 14)


def test_a_schedule_changes_how_many_are_masked_never_which_come_first(tmp_path):
    """Masks of a smaller share are among those of a larger one: both are a keyed order's first."""
    write(tmp_path)
    made = loader(tmp_path, mask_share=[0.8, 0.2])
    assert same(join(made.batch(0, 75).batches), join(made.batch(0, 75, share=0.2).batches))
    found = {}
    for share in (0.2, 0.5, 0.8):
        whole = join(made.batch(0, 75, share=share).batches)
        assert same(whole, join(loader(tmp_path, mask_share=share).batch(0, 75).batches))
        parts = [made.batch(0, 75, rank, 3, 7, share=share) for rank in range(3)]
        assert same(join([one for part in parts for one in part.batches]), whole)
        assert parts[0].masked == len(whole["masked_positions"])
        found[share] = set(whole["masked_positions"].tolist())
    assert found[0.2] < found[0.5] < found[0.8]
