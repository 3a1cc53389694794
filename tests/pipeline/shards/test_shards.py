"""Shards come back as they were written; anything else is refused with its place."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import InputError
from pipeline.shards import ShardInfo, open_folder, open_shard, words_per_token, write_shard
from tests.support import finished
from tests.support.examples import examples
from tests.support.refusals import refused


def info(vocab_size: int = 100, split: str = "train") -> ShardInfo:
    return ShardInfo(split=split, pairs="nsp", tokenizer="abc", vocab_size=vocab_size, sequence_length=16, seed=0)


def write(path: Path, rows: list[list[int]], vocab_size: int = 100) -> None:
    lengths = [len(row) for row in rows]
    write_shard(
        path,
        info(vocab_size),
        np.array([t for row in rows for t in row], np.uint32 if vocab_size > 65536 else np.uint16),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.array([length // 2 for length in lengths]),
        np.array([length % 3 == 0 for length in lengths], np.bool_),
    )


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.lists(st.integers(0, 99), max_size=13), min_size=1, max_size=40))
def test_rows_come_back(tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]]) -> None:
    path = tmp_path_factory.mktemp("shards") / "train-00000-of-00001.arrow"
    write(path, rows)
    shard = open_shard(path)
    assert shard.rows == len(rows)
    ends = zip(shard.offsets[:-1], shard.offsets[1:], strict=True)
    assert [shard.values[low:high].tolist() for low, high in ends] == rows
    assert shard.a_len.tolist() == [len(row) // 2 for row in rows]
    assert shard.is_random_next.tolist() == [len(row) % 3 == 0 for row in rows]


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    write(tmp_path / "train-0.arrow", [[70_000, 1]], vocab_size=70_001)
    assert open_shard(tmp_path / "train-0.arrow").values.tolist() == [70_000, 1]
    write(tmp_path / "train-1.arrow", [[65_535, 1]], vocab_size=65_536)
    assert open_shard(tmp_path / "train-1.arrow").values.dtype == np.uint16


def test_bytes_are_a_function_of_the_rows(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, [[1, 2, 3], [4]])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(("size", "dtype"), [(2**15, np.uint16), (2**15 + 1, np.uint32), (2**16 + 1, np.uint32)])
def test_marks_of_words_are_the_top_bit_of_an_id(tmp_path: Path, size: int, dtype: type[np.unsignedinteger]) -> None:
    marked = dataclasses.replace(info(size), words="jieba")
    ids, goes_on = np.array([0, size - 1, 7, size - 1]), np.array([False, True, True, False])
    path = tmp_path / "train-0.arrow"
    offsets, a_len, labels = np.array([0, 3, 4]), np.array([1, 1]), np.zeros(2, np.bool_)
    write_shard(path, marked, marked.marked(ids, goes_on), offsets, a_len, labels)
    shard = open_shard(path)
    assert (shard.info, shard.values.dtype) == (marked, dtype)
    assert shard.ids(0, 4).tolist() == ids.tolist()
    assert shard.ids(1, 2).tolist() == [size - 1]
    top = 8 * np.dtype(dtype).itemsize - 1
    assert (shard.values >> top).tolist() == goes_on.tolist()
    metadata = json.loads(pa.ipc.open_file(path).schema.metadata[b"shard"])
    assert (metadata["format"], metadata["words"]) == ("shard/2", "jieba")


def test_without_marks_a_shard_says_what_it_always_said(tmp_path: Path) -> None:
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
        ({"format": "shard/2"}, "words=None .*shard/2"),
        ({"format": "shard/2", "words": 5}, "words=5 .*shard/2"),
    ],
)
def test_a_format_that_is_not_known_is_refused(tmp_path: Path, wrong: dict[str, object], message: str) -> None:
    path = tmp_path / "train-0.arrow"
    write(path, [[1, 2, 3]])
    batch = pa.ipc.open_file(path).read_all()
    fields = json.loads(batch.schema.metadata[b"shard"]) | wrong
    table = batch.replace_schema_metadata({"shard": json.dumps(fields)})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    with refused(InputError, message, path=str(path)):
        open_shard(path)


def test_any_arrow_reader_opens_a_shard(tmp_path: Path) -> None:
    write(tmp_path / "train-0.arrow", [[1, 2, 3], [4]])
    table = pa.ipc.open_file(tmp_path / "train-0.arrow").read_all()
    assert table["input_ids"].to_pylist() == [[1, 2, 3], [4]]


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    with refused(InputError, path=str(tmp_path / "gone.arrow")):
        open_shard(tmp_path / "gone.arrow")


@pytest.mark.parametrize("keep", [0, 10, 200, -30])
def test_a_shard_cut_short_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "train-0.arrow"
    write(path, [[1, 2, 3]] * 50)
    path.write_bytes(path.read_bytes()[:keep])
    with refused(InputError, "readable", path=str(path)):
        open_shard(path)


@pytest.mark.parametrize("offsets", [[-2, 7, 16], [0, 7, 17], [0, 17, 16], [0, -1, 16], [0, 7, -1]])
def test_rows_that_are_no_ranges_of_ids_are_refused(tmp_path: Path, offsets: list[int]) -> None:
    path = tmp_path / "train-0.arrow"
    write(path, [[1] * 7, [2] * 9])
    right, wrong = (np.array(numbers, "<i4").tobytes() for numbers in ([0, 7, 16], offsets))
    assert path.read_bytes().count(right) == 1
    path.write_bytes(path.read_bytes().replace(right, wrong))
    with refused(InputError, path=str(path)):
        open_shard(path)


@pytest.mark.parametrize("column", [0, 1, 2])
def test_rows_without_a_value_are_refused(tmp_path: Path, column: int) -> None:
    path = tmp_path / "train-0.arrow"
    write(path, [[1, 2, 3], [4]])
    table = pa.ipc.open_file(path).read_all()
    columns = [part.combine_chunks() for part in table.columns]
    columns[column] = pa.array([columns[column][0].as_py(), None], columns[column].type)
    table = pa.table(columns, schema=table.schema)
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    with refused(InputError, path=str(path)):
        open_shard(path)


def test_another_arrow_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train-0.arrow"
    table = pa.table({"x": [1]})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    with refused(InputError, "Arrow", path=str(path)):
        open_shard(path)


def test_words_of_an_id_are_those_of_its_shard(tmp_path: Path) -> None:
    for name, count in (("train-0.arrow", 8), ("train-1.arrow", 4), ("train-2.arrow", 0)):
        write(tmp_path / name, [[1] * count])
    words = {"train-0.arrow": {"words": 6.0}, "train-1.arrow": {"words": 1.0}, "train-2.arrow": {"words": 0.0}}
    finished.manifest("prepare", figures={"shards": words}).write(tmp_path)
    assert words_per_token(open_folder(tmp_path, "train")).tolist() == [0.75, 0.25, 0.0]  # type: ignore[union-attr]
    finished.manifest("prepare", figures={"shards": words | {"train-1.arrow": {}}}).write(tmp_path)
    assert words_per_token(open_folder(tmp_path, "train")) is None


def test_an_empty_folder_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"pipeline\.prepare"):
        open_folder(tmp_path, "train")


def test_shards_of_two_makings_do_not_mix(tmp_path: Path) -> None:
    write(tmp_path / "train-00000-of-00002.arrow", [[1]])
    write(tmp_path / "train-00001-of-00002.arrow", [[1]], vocab_size=101)
    with refused(InputError, "metadata", path=str(tmp_path / "train-00001-of-00002.arrow")):
        open_folder(tmp_path, "train")
