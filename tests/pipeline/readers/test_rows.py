"""Rows of named fields: what is wrong with one is said with its place and the key to set."""

import json
import os
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import ConfigError, InputError
from pipeline.readers import Document
from tests.pipeline.readers.reading import config, read, rows_in
from tests.support.refusals import refused

TEXT = {"one": pa.string(), "list": pa.list_(pa.string()), "large": pa.large_string()}


def with_bytes(kind: pa.DataType, values: list[bytes]) -> pa.Array:
    """A column of texts that need not be valid."""
    large = pa.types.is_large_string(kind)
    texts = pa.array(values, pa.large_binary() if large else pa.binary())
    texts = texts.view(pa.large_string() if large else pa.string())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), texts)
    return texts


@pytest.mark.parametrize("kind", TEXT)
def test_a_parquet_row_that_is_not_utf8_is_broken(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    values = [f"text {n}".encode() for n in range(600)]
    values[300] = b"caf\xe9"
    pq.write_table(pa.table({"text": with_bytes(TEXT[kind], values)}), path)
    with refused(InputError, "row 301: not valid UTF-8", path=f"{path} row 301"):
        read(config("parquet", path))
    found, tally = read(config("parquet", path, on_error="skip"))
    assert [d.text for d in found] == [f"text {n}" for n in range(600) if n != 300]
    assert [d.id for d in found][299:301] == [f"{path} row 300", f"{path} row 302"]
    assert tally == {"broken": 1}


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "a"]).dictionary_encode(),
        pa.array(["a", None, "a"], pa.string_view()),
        pa.array(["a", None, "a"], pa.binary()),
        pa.array([["a"], None, ["a", ""]], pa.list_(pa.large_binary())),
        pa.array([["a"], None, ["a", ""]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    ],
    ids=["dictionary", "view", "binary", "list of binary", "list of dictionary"],
)
def test_text_of_any_layout_is_text(column: pa.Array, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    found, _ = read(config("parquet", tmp_path))
    assert [document.text for document in found] == ["a", "", "a"]


def test_texts_and_ids_stored_as_bytes_are_text(tmp_path: Path) -> None:
    columns = {name: pa.array([f"{name} é".encode(), b"caf\xe9"]) for name in ("text", "id")}
    pq.write_table(pa.table({**columns, "meta": [{"t": b"one"}, {"t": b"two"}]}), tmp_path / "a.parquet")
    names = {"text": ["text", "meta.t"], "id": "id"}
    found, tally = read(config("parquet", tmp_path, options=names, on_error="skip"))
    assert found == [Document("id é", "text é\none")]
    assert "row 2: not valid UTF-8" in tally.broken[0]


@pytest.mark.parametrize("reader", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("date >= 2026-09", "cd"),
        ("date<2026-09", "ab"),
        ("meta.n > 9", "cd"),
        ("meta.n == 3", "b"),
        ("good != true", "c"),
        ("lang == de", "ad"),
        ("lang == 'de'", "ad"),
        ('lang == "de"', "ad"),
        ("good != True", "c"),
        ("lang != de", "c"),
        ("lang == de and date < 2026-09", "a"),
        ("lang == 'de' and date >= 2025-02\n and meta.n<21", "d"),
        ("lang != and and good == true", "ad"),
        ("lang != x y   and \tgood == true ", "ad"),
        ("lang != 'x and y' and good == true", "ad"),
        ("lang != 'x and date < 2026'", "acd"),
    ],
)
def test_only_rows_that_are_asked_for_are_read(reader: str, where: str, wanted: str, tmp_path: Path) -> None:
    dates, langs = ("2025-01-02", "2026-08-31", "2026-09-01", "2027-01-01"), ("de", None, "en", "de")
    rows = [
        {"text": text, "date": date, "lang": lang, "good": text != "c", "meta": {"n": n}}
        for text, date, lang, n in zip("abcd", dates, langs, (-1, 3, 10, 20.5), strict=True)
    ]
    if reader == "parquet":
        rows = [row | {"meta": {"n": float(row["meta"]["n"])}} for row in rows]
    found, tally = read(config(reader, rows_in(tmp_path, reader, rows), options={"where": where}))
    assert "".join(document.text for document in found) == wanted
    assert tally == {"left out by corpus.options.where": 4 - len(wanted)}


@pytest.mark.parametrize(
    ("values", "where"),
    [
        (pa.array([150, 10**21, None], pa.decimal128(24)), "x == 150"),
        (pa.array([Decimal("0.10"), Decimal(9), None], pa.decimal128(10, 2)), "x < 0.11"),
        (pa.array([1_788_220_800_000_000_001, 1_690_000_000_000_000_001, None], pa.timestamp("ns")), "x >= 2026"),
        (
            pa.array([1_788_220_800_000_000_001, 1_690_000_000_000_000_001, None], pa.timestamp("ns", "UTC")),
            "x >= 2026",
        ),
    ],
)
def test_numbers_and_times_of_any_precision_are_compared(values: pa.Array, where: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["one", "two", "three"], "x": values}), tmp_path / "a.parquet")
    found, tally = read(config("parquet", tmp_path, options={"where": where}))
    assert [document.text for document in found] == ["one"]
    assert tally == {"left out by corpus.options.where": 2}


@pytest.mark.parametrize(
    "where",
    [
        "date",
        "date >=",
        ">= 2026",
        5,
        "",
        "lang == de or date < 2026",
        "lang == de, date < 2026",
        "lang == de && date < 2026",
        "lang == de AND date < 2026",
        "lang == de and date <",
        "lang != x=y",
        "lang == 'de' or lang == 'en'",
        "lang == 'de and date < 2026",
        "lang and date",
    ],
)
def test_a_condition_that_is_none_is_refused(where: object, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "One."}\n')
    with refused(ConfigError, key="corpus.options.where"):
        read(config("jsonl", tmp_path / "a.jsonl", options={"where": where}))


def test_a_condition_on_a_field_that_is_missing_names_its_key(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "One."}\n')
    with pytest.raises(InputError, match=r"set corpus\.options\.where"):
        read(config("jsonl", tmp_path / "a.jsonl", options={"where": "date > 2026"}))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("date < 2026-9", "2026-10-01"),
        ("date >= 2026-09", "9/1/2026"),
        ("date >= 2026-09", "September 2026"),
        ("date > 9", "10"),
        ("date > 2026-09-01T12", "2026-09-01 13:00"),
        ("date <= 2026-09", "2026-09-30"),
        ("date >= 2026-09-01", "2026-09"),
        ("date > 2026-09", "2026-09-30"),
    ],
)
def test_texts_whose_digits_do_not_line_up_have_no_order(where: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "One.", "date": value}) + "\n")
    with refused(InputError, "same form", path=str(tmp_path / "a.jsonl"), line=1):
        read(config("jsonl", tmp_path / "a.jsonl", options={"where": where}))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"])
    pq.write_table(twice, tmp_path / "a.parquet")
    with refused(InputError, "2 columns named text", key="corpus.options.text", path=str(tmp_path / "a.parquet")):
        read(config("parquet", tmp_path))


def test_a_file_whose_texts_are_all_null_has_empty_documents(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [None, None]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["b"]}), tmp_path / "b.parquet")
    found, _ = read(config("parquet", tmp_path))
    assert [document.text for document in found] == ["", "", "b"]


def test_a_parquet_file_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"text": ["a"]}), "a.parquet")
    for name in (b"caf\xe9.parquet", b"file:a.parquet", b"s3:a%20#b.parquet"):
        Path(os.fsdecode(name)).write_bytes(Path("a.parquet").read_bytes())
        found, _ = read(config("parquet", Path(os.fsdecode(name))))
        assert [document.text for document in found] == ["a"]


@pytest.mark.parametrize("reader", ["jsonl", "parquet"])
def test_fields_of_null_are_null(reader: str, tmp_path: Path) -> None:
    path = rows_in(tmp_path, reader, [{"title": "A", "meta": {"text": "a"}}, {"title": "B", "meta": None}])
    found, _ = read(config(reader, path, options={"text": ["title", "meta.text"]}))
    assert [document.text for document in found] == ["A\na", "B"]
    found, _ = read(config(reader, path, options={"text": "meta.text"}))
    assert [document.text for document in found if document.text] == ["a"]


@pytest.mark.parametrize("reader", ["jsonl", "parquet"])
@pytest.mark.parametrize("key", ["text", "id"])
def test_a_missing_field_names_the_key_that_chose_it(reader: str, key: str, tmp_path: Path) -> None:
    path = rows_in(tmp_path, reader, [{"text": "a"}])
    with pytest.raises(InputError, match=f"set corpus.options.{key}$"):
        read(config(reader, path, options={key: "gone"}))


@pytest.mark.parametrize("option", ["title", "id", "text"])
def test_a_field_name_that_is_none_is_refused(option: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "One."}\n')
    with refused(ConfigError, key=f"corpus.options.{option}"):
        read(config("jsonl", tmp_path / "a.jsonl", options={option: 5}))


@pytest.mark.parametrize("reader", ["jsonl", "parquet"])
@pytest.mark.parametrize("split_bytes", [2**20, 2**26])
def test_a_limit_cuts_a_file_below_the_size_of_a_split(reader: str, split_bytes: int, tmp_path: Path) -> None:
    """A first try with a little of a corpus reads a little, the same for `vocab` and `prepare`."""
    rows, path = [{"text": f"Text {number:05}."} for number in range(10_000)], tmp_path / f"a.{reader}"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if reader == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=100, compression="none", use_dictionary=False)
    limited = config(reader, path, limit=str(path.stat().st_size // 10))
    assert 1000 <= len(read(limited, split_bytes)[0]) <= 1250


@pytest.mark.parametrize(
    ("value", "wanted", "found"), [(2**53 + 1, 2**53 + 1, 1), (2**53, 2**53 + 1, 0), (0.5, 0.5, 1)]
)
def test_numbers_are_compared_whole(value: float, wanted: float, found: int, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "One.", "n": value}) + "\n")
    assert len(read(config("jsonl", tmp_path / "a.jsonl", options={"where": f"n == {wanted}"}))[0]) == found


@pytest.mark.parametrize(
    ("value", "sign", "match"),
    [({"a": 1}, "==", "says nothing"), (5, "==", "holds a number"), (True, ">", "says nothing")],
)
def test_what_cannot_be_compared_is_refused(value: object, sign: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "One.", "lang": value}) + "\n")
    with refused(InputError, match, line=1):
        read(config("jsonl", tmp_path / "a.jsonl", options={"where": f"lang {sign} de"}))
