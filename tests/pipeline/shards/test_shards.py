"""Shards come back as they were written; anything else is refused with its place."""

import dataclasses
import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.common import counter_rng
from pipeline.errors import InputError
from pipeline.shards import ShardInfo, open_folder, open_shard, words_per_token, write_shard
from pipeline.shards.full_sentences import best_fit, fill, full_sentences
from pipeline.shards.holdout import LOWEST, LowestHashes, document_hash, is_held_out, sensible_count
from tests.pipeline.shards.made_documents import SEPARATOR, documents_of, owners, rows
from tests.support import finished
from tests.support.examples import examples
from tests.support.refusals import refused


def info(vocab_size=100, split="train"):
    return ShardInfo(split=split, pairs="nsp", tokenizer="abc", vocab_size=vocab_size, sequence_length=16, seed=0)


def write(path, rows, vocab_size=100):
    lengths = [len(row) for row in rows]
    tokens = np.array([t for row in rows for t in row], np.uint32 if vocab_size > 65536 else np.uint16)
    halves, labels = np.array([n // 2 for n in lengths]), np.array([n % 3 == 0 for n in lengths], np.bool_)
    write_shard(path, info(vocab_size), tokens, np.concatenate([[0], np.cumsum(lengths)]), halves, labels)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.lists(st.integers(0, 99), max_size=13), min_size=1, max_size=40))
def test_rows_come_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("shards") / "train-00000-of-00001.arrow"
    write(path, rows)
    shard = open_shard(path)
    assert shard.rows == len(rows)
    ends = zip(shard.offsets[:-1], shard.offsets[1:], strict=True)
    assert [shard.values[low:high].tolist() for low, high in ends] == rows
    assert shard.a_len.tolist() == [len(row) // 2 for row in rows]
    assert shard.is_random_next.tolist() == [len(row) % 3 == 0 for row in rows]


def test_bytes_are_a_function_of_the_rows(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name, [[1, 2, 3], [4]])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(("size", "dtype"), [(2**15, np.uint16), (2**15 + 1, np.uint32), (2**16 + 1, np.uint32)])
def test_marks_of_words_are_the_top_bit_of_an_id(tmp_path, size, dtype):
    marked = dataclasses.replace(info(size), words="jieba")
    ids, goes_on = np.array([0, size - 1, 7, size - 1]), np.array([False, True, True, False])
    path = tmp_path / "train-0.arrow"
    offsets, a_len, labels = np.array([0, 3, 4]), np.array([1, 1]), np.zeros(2, np.bool_)
    write_shard(path, marked, marked.marked(ids, goes_on), offsets, a_len, labels)
    shard = open_shard(path)
    assert (shard.info, shard.values.dtype) == (marked, dtype)
    assert (shard.ids(0, 4).tolist(), shard.ids(1, 2).tolist()) == (ids.tolist(), [size - 1])
    top = 8 * np.dtype(dtype).itemsize - 1
    assert (shard.values >> top).tolist() == goes_on.tolist()
    metadata = json.loads(pa.ipc.open_file(path).schema.metadata[b"shard"])
    assert (metadata["format"], metadata["words"]) == ("shard/2", "jieba")


def test_without_marks_a_shard_says_what_it_always_said(tmp_path):
    write(tmp_path / "train-0.arrow", [[1, 2, 3], [4]])
    metadata = pa.ipc.open_file(tmp_path / "train-0.arrow").schema.metadata[b"shard"]
    assert metadata == (
        b'{"format": "shard/1", "pairs": "nsp", "seed": 0, "sequence_length": 16, '
        b'"split": "train", "tokenizer": "abc", "vocab_size": 100}'
    )
    shard = open_shard(tmp_path / "train-0.arrow")
    assert shard.ids(0, 4).tolist() == shard.values.tolist()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"format": "shard/9"}, "shard/9"),
        ({"words": "jieba"}, "words='jieba' .*shard/1"),
        *(({"format": "shard/2", "words": words}, f"words={words} .*shard/2") for words in (None, 5)),
    ],
)
def test_a_format_that_is_not_known_is_refused(tmp_path, wrong, message):
    path = tmp_path / "train-0.arrow"
    write(path, [[1, 2, 3]])
    batch = pa.ipc.open_file(path).read_all()
    fields = json.loads(batch.schema.metadata[b"shard"]) | wrong
    another(path, batch.replace_schema_metadata({"shard": json.dumps(fields)}))
    with refused(InputError, message, path=str(path)):
        open_shard(path)


def cut(path, keep):
    path.write_bytes(path.read_bytes()[:keep])


def another(path, rows=None):
    """Write a file of Arrow with these rows."""
    table = pa.table({"x": [1]}) if rows is None else rows
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("keep", [0, 10, 200, -30, None, "gone"])
def test_what_is_no_shard_or_cut_short_is_refused(tmp_path, keep):
    path = tmp_path / "train-0.arrow"
    with pytest.raises(InputError, match=r"pipeline\.prepare"):
        open_folder(tmp_path, "train")
    write(path, [[1, 2, 3]] * 50)
    assert pa.ipc.open_file(path).read_all()["input_ids"].to_pylist() == [[1, 2, 3]] * 50, "any Arrow reader opens it"
    if keep == "gone":
        path.unlink()
    elif keep is None:
        another(path)
    else:
        cut(path, keep)
    said = {"gone": None, None: "Arrow"}.get(keep, "readable")
    with refused(InputError, said, path=str(path)):
        open_shard(path)


@pytest.mark.parametrize("offsets", [[-2, 7, 16], [0, 7, 17], [0, 17, 16], [0, -1, 16], [0, 7, -1]])
def test_rows_that_are_no_ranges_of_ids_are_refused(tmp_path, offsets):
    path = tmp_path / "train-0.arrow"
    write(path, [[1] * 7, [2] * 9])
    right, wrong = (np.array(numbers, "<i4").tobytes() for numbers in ([0, 7, 16], offsets))
    assert path.read_bytes().count(right) == 1
    path.write_bytes(path.read_bytes().replace(right, wrong))
    with refused(InputError, path=str(path)):
        open_shard(path)


@pytest.mark.parametrize("column", [0, 1, 2])
def test_rows_without_a_value_are_refused(tmp_path, column):
    path = tmp_path / "train-0.arrow"
    write(path, [[1, 2, 3], [4]])
    table = pa.ipc.open_file(path).read_all()
    columns = [part.combine_chunks() for part in table.columns]
    columns[column] = pa.array([columns[column][0].as_py(), None], columns[column].type)
    another(path, pa.table(columns, schema=table.schema))
    with refused(InputError, path=str(path)):
        open_shard(path)


def test_words_of_an_id_are_those_of_its_shard(tmp_path):
    for name, count in (("train-0.arrow", 8), ("train-1.arrow", 4), ("train-2.arrow", 0)):
        write(tmp_path / name, [[1] * count])
    words = {"train-0.arrow": {"words": 6.0}, "train-1.arrow": {"words": 1.0}, "train-2.arrow": {"words": 0.0}}
    finished.manifest("prepare", figures={"shards": words}).write(tmp_path)
    assert words_per_token(open_folder(tmp_path, "train")).tolist() == [0.75, 0.25, 0.0]
    finished.manifest("prepare", figures={"shards": words | {"train-1.arrow": {}}}).write(tmp_path)
    assert words_per_token(open_folder(tmp_path, "train")) is None


def test_shards_of_two_makings_do_not_mix(tmp_path):
    write(tmp_path / "train-00000-of-00002.arrow", [[1]])
    write(tmp_path / "train-00001-of-00002.arrow", [[1]], vocab_size=101)
    with refused(InputError, "metadata", path=str(tmp_path / "train-00001-of-00002.arrow")):
        open_folder(tmp_path, "train")


# Best-fit packing cuts only documents that are too long, and leaves few places free.


KEY = counter_rng.key(0, "x")


def pieces(row):
    """What is between the separators of a sequence."""
    found = [[]]
    for token in row:
        if token == SEPARATOR:
            found.append([])
        else:
            found[-1].append(token)
    return found


corpora = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), max_size=12)


@given(corpora, st.integers(4, 60))
def test_every_token_is_in_one_sequence_and_only_long_documents_are_cut(lengths, most):
    documents = documents_of(lengths)
    tokens, pairs, _ = best_fit(documents, most, KEY, separator=SEPARATOR, chosen=np.arange(len(lengths)))
    found = rows(tokens, pairs)
    assert all(0 < len(row) <= most for row in found)
    every = [piece for row in found for piece in pieces(row)]
    assert sorted(token for piece in every for token in piece) == list(range(sum(map(sum, lengths))))
    bounds = documents.sentences[documents.starts].tolist()
    for first, last in itertools.pairwise(bounds):
        if last - first <= most:
            assert list(range(first, last)) in every


def plain(sizes, most):
    """Best fit of decreasing sizes, by looking at every sequence: how full each is, sorted."""
    full = []
    for size in sorted(sizes, reverse=True):
        fits = [n for n, used in enumerate(full) if used + 1 + size <= most]
        if fits:
            full[max(fits, key=lambda n: full[n])] += 1 + size
        else:
            full.append(size)
    return sorted(full)


@given(st.integers(1, 50).flatmap(lambda most: st.tuples(st.lists(st.integers(1, most), max_size=40), st.just(most))))
def test_pieces_are_put_where_they_fit_best(case):
    sizes, most = case
    made = fill(sizes, most)
    assert sorted(piece for row in made for piece in row) == list(range(len(sizes)))
    assert sorted(sum(sizes[p] for p in row) + len(row) - 1 for row in made) == plain(sizes, most)


@given(corpora, st.integers(4, 60))
def test_cut_documents_are_counted_in_both_packings(lengths, most):
    documents = documents_of(lengths)
    owner = owners(lengths)
    for pack in (full_sentences, best_fit):
        tokens, pairs, cut = pack(documents, most, KEY, separator=SEPARATOR, chosen=np.arange(len(lengths)))
        homes = {}
        for number, row in enumerate(rows(tokens, pairs)):
            for token in row:
                if token != SEPARATOR:
                    homes.setdefault(int(owner[token]), set()).add(number)
        assert cut == sum(len(numbers) > 1 for numbers in homes.values()), pack


def test_documents_of_many_lengths_leave_few_places_free():
    draws = np.random.default_rng(0)
    lengths = [[20] * int(n) for n in np.clip(draws.lognormal(2.5, 1.2, 2000), 1, 400)]
    documents, most = documents_of(lengths), 1022
    _, pairs, few = best_fit(documents, most, KEY, separator=SEPARATOR, chosen=np.arange(len(lengths)))
    assert pairs.a_len.sum() / (len(pairs) * most) > 0.98
    _, _, many = full_sentences(documents, most, KEY, separator=SEPARATOR, chosen=np.arange(len(lengths)))
    assert few < many / 2


# Sequences of full sentences hold every token once, in order.


def packed(lengths, most, separator, seed=0):
    """Sequences over documents whose sentences have these lengths; token k of the corpus is k."""
    key, chosen = counter_rng.key(seed, "x"), np.arange(len(lengths))
    tokens, pairs, _ = full_sentences(documents_of(lengths), most, key, separator=separator, chosen=chosen)
    assert not pairs.b_len.any()
    return rows(tokens, pairs)


corpora_of_sentences = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), max_size=8)


@given(corpora_of_sentences, st.integers(4, 60), st.sampled_from([None, SEPARATOR]))
def test_every_token_is_in_one_sequence(lengths, most, separator):
    found = packed(lengths, most, separator)
    tokens = [token for sequence in found for token in sequence if token != SEPARATOR]
    assert sorted(tokens) == list(range(sum(map(sum, lengths))))
    assert all(0 < len(sequence) <= most for sequence in found)
    assert not any(SEPARATOR in (sequence[0], sequence[-1]) for sequence in found)


@given(corpora_of_sentences, st.integers(4, 60))
def test_documents_meet_only_at_a_separator(lengths, most):
    owner = owners(lengths)
    for sequence in packed(lengths, most, None):
        assert sequence == list(range(sequence[0], sequence[0] + len(sequence)))
        assert owner[sequence[0]] == owner[sequence[-1]]
    for sequence in packed(lengths, most, SEPARATOR):
        for left, right in itertools.pairwise(sequence):
            joined = SEPARATOR in (left, right) or right == left + 1
            assert joined, "what follows is the next token"


def test_sequences_hold_whole_sentences_and_as_many_as_fit_in_another_order_each_round():
    assert packed([[3, 3, 3, 3]], 7, None) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert packed([[2, 10, 2]], 4, None) == [[0, 1], [2, 3, 4, 5], [6, 7, 8, 9], [10, 11, 12, 13]]
    assert packed([[5] * 3] * 20, 30, SEPARATOR, 0) != packed([[5] * 3] * 20, 30, SEPARATOR, 1)


# The share that is advised holds out as many documents as it says.


DIGESTS = st.lists(st.binary(min_size=16, max_size=16), min_size=LOWEST, max_size=60, unique=True)


@given(DIGESTS, st.data())
def test_the_advised_share_holds_out_what_was_asked(digests, data):
    lowest, parts = LowestHashes(), [LowestHashes(), LowestHashes()]
    for number, digest in enumerate(digests):
        parts[number % 2].add(digest)
    for part in parts:
        lowest.merge(list(part))
    if len(lowest) < LOWEST or len({digest[:7] for digest in digests}) < len(digests):
        return  # as good as equal
    count = data.draw(st.integers(1, LOWEST - 1))
    share = lowest.share_for(count)
    assert 0 < share < 1
    assert sum(is_held_out(digest, share) for digest in digests) == count


def test_the_advised_share_is_short():
    lowest, places = LowestHashes(), list[float]()
    for number in range(1000):
        lowest.add(digest := document_hash(f"document {number}"))
        places = sorted([*places, int.from_bytes(digest[:8], "big") / 2**64])[:LOWEST]
        assert lowest == places
    for count in range(1, LOWEST):
        assert len(str(lowest.share_for(count))) <= 8


@pytest.mark.parametrize(("documents", "held"), [(2, 1), (3, 1), (4, 2), (8, 4), (1000, 4)])
def test_some_documents_are_left_to_train_on(documents, held):
    assert sensible_count(documents) == held
