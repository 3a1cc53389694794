"""Rows of named fields: what is wrong with one is said with its place and the key to set."""

import csv
import json
import os
import re
import shutil
from decimal import Decimal
from pathlib import Path

import conllu
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError, InputError
from pipeline.readers import Document, open_corpus
from pipeline.readers.formats import MARKED
from tests.pipeline.readers.reading import config, read, rows_in
from tests.support.refusals import refused

TEXT = {"one": pa.string(), "list": pa.list_(pa.string()), "large": pa.large_string()}


def with_bytes(kind, values):
    """A column of texts that need not be valid."""
    large = pa.types.is_large_string(kind)
    texts = pa.array(values, pa.large_binary() if large else pa.binary())
    texts = texts.view(pa.large_string() if large else pa.string())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), texts)
    return texts


@pytest.mark.parametrize("kind", TEXT)
def test_a_parquet_row_that_is_not_utf8_is_broken(kind, tmp_path):
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
        pa.array([[["a"]], None, [["a"], []]], pa.list_(pa.list_(pa.string()))),
        pa.array([["a"], [""], ["a"]], pa.list_(pa.string(), 1)),
    ],
    ids=["dictionary", "view", "binary", "list of binary", "list of dictionary", "lists", "lists of a size"],
)
def test_text_of_any_layout_is_text(column, tmp_path):
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    assert texts("parquet", tmp_path) == ["a", "", "a"]


def test_texts_and_ids_stored_as_bytes_are_text(tmp_path):
    columns = {name: pa.array([f"{name} é".encode(), b"caf\xe9"]) for name in ("text", "id")}
    pq.write_table(pa.table({**columns, "meta": [{"t": b"one"}, {"t": b"two"}]}), tmp_path / "a.parquet")
    names = {"text": ["text", "meta.t"], "id": "id"}
    found, tally = read(config("parquet", tmp_path, options=names, on_error="skip"))
    assert found == [Document("id é", "text é\none")]
    assert "row 2: not valid UTF-8" in tally.broken[0]


WHERE = "date >= 2026-09:cd|date<2026-09:ab|meta.n > 9:cd|meta.n == 3:b|good != true:c|good != True:c|lang == de:ad|"
WHERE += "lang == 'de':ad|lang == \"de\":ad|lang != de:c|lang == de and date < 2026-09:a|"
WHERE += "lang == 'de' and date >= 2025-02\n and meta.n<21:d|lang != and and good == true:ad|"
WHERE += "lang != x y   and \tgood == true :ad|lang != 'x and y' and good == true:ad|lang != 'x and date < 2026':acd"
WHERE += "|lang == null:b|lang != null:acd|meta.n != null and lang == null:b"


@pytest.mark.parametrize("reader", ["jsonl", "parquet"])
@pytest.mark.parametrize(("where", "wanted"), [row.split(":") for row in WHERE.split("|")])
def test_only_rows_that_are_asked_for_are_read(reader, where, wanted, tmp_path):
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


NANOSECONDS = [1_788_220_800_000_000_001, 1_690_000_000_000_000_001, None]


@pytest.mark.parametrize(
    ("values", "where"),
    [
        (pa.array([150, 10**21, None], pa.decimal128(24)), "x == 150"),
        (pa.array([Decimal("0.10"), Decimal(9), None], pa.decimal128(10, 2)), "x < 0.11"),
        *((pa.array(NANOSECONDS, pa.timestamp("ns", zone)), "x >= 2026") for zone in (None, "UTC")),
    ],
)
def test_numbers_and_times_of_any_precision_are_compared(values, where, tmp_path):
    pq.write_table(pa.table({"text": ["one", "two", "three"], "x": values}), tmp_path / "a.parquet")
    found, tally = read(config("parquet", tmp_path, options={"where": where}))
    assert [document.text for document in found] == ["one"]
    assert tally == {"left out by corpus.options.where": 2}


CONDITIONS = "date|date >=|>= 2026||lang == de or date < 2026|lang == de, date < 2026|lang == de && date < 2026|"
CONDITIONS += "lang == de AND date < 2026|lang == de and date <|lang != x=y|lang == 'de' or lang == 'en'|"
CONDITIONS += "lang == 'de and date < 2026|lang and date"
CHOICES = [("where", each) for each in (5, *CONDITIONS.split("|"))]
CHOICES += [("html", "no"), ("title", 5), ("id", 5), *(("text", each) for each in (5, [], [1], ["a", "a"], None))]


CHOICES = [("jsonl", *choice) for choice in CHOICES]
CHOICES += [("csv", "header", "no"), ("csv", "quotes", 1), ("text", "hard_wraps", "no"), ("lines", "numbered", "on")]


@pytest.mark.parametrize(("reader", "option", "value"), CHOICES)
def test_an_option_that_cannot_be_is_named(reader, option, value, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "One."}\n')
    with refused(ConfigError, key=f"corpus.options.{option}"):
        read(config(reader, tmp_path / "a.jsonl", options={option: value}))


UNLIKE = "2026-10-01 < 2026-9|9/1/2026 >= 2026-09|September 2026 >= 2026-09|20261001 > 202609|"
UNLIKE += "2026-09-01 13:00 > 2026-09-01T12|2026-09-30 <= 2026-09|2026-09 >= 2026-09-01|2026-09-30 > 2026-09"
UNLIKE = [(*re.split(" (?=[<>])", row), "same form") for row in UNLIKE.split("|")]
OTHER_KINDS = [({"a": 1}, "== de", "says nothing"), (5, "> 1_0", "holds a number"), (True, "> de", "says nothing")]


@pytest.mark.parametrize(("value", "where", "match"), [*UNLIKE, *OTHER_KINDS])
def test_what_cannot_be_compared_is_refused(value, where, match, tmp_path):
    """Texts whose digits do not line up have no order."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "One.", "x": value}) + "\n")
    with refused(InputError, match, path=str(tmp_path / "a.jsonl"), line=1):
        read(config("jsonl", tmp_path / "a.jsonl", options={"where": f"x {where}"}))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (['{"id": "a"}', '{"text": "Words.", "id": "b"}'], "among id; set corpus.on_error=skip"),
        (["{'text': 'Words.'}"], "json.dumps"),
        (['\x1e{"text": "Words."}', '\x1e{"text": "More."}'], ["Words.", "More."]),  # RFC 7464
    ],
)
def test_json_lines_of_other_writers_are_read_or_say_what_to_do(lines, found, tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    if isinstance(found, list):
        assert texts("jsonl", tmp_path) == found
        return
    with refused(InputError, found, line=1):
        read(config("jsonl", tmp_path))


@pytest.mark.parametrize(
    ("names", "glob"),
    [
        (["b.en", "b.fr", "LICENSE", "README"], "*.en"),
        (["a.train", "b.train", "c.dev"], "*.train"),
        (["wiki_00"], "*"),
        ([f"news-{n}.en-{n}" for n in range(9)], "*"),
    ],
)
def test_a_folder_of_files_with_other_endings_names_the_pattern_that_reads_them(names, glob, tmp_path):
    for name in names:
        (tmp_path / name).write_text("Some text.")
    with refused(InputError, key="corpus.path") as raised:
        read(config("text", tmp_path))
    assert str(raised.value).endswith(f"='{tmp_path}/**/{glob}'")


def test_a_file_whose_texts_are_all_null_has_empty_documents(tmp_path):
    pq.write_table(pa.table({"text": [None, None]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["b"]}), tmp_path / "b.parquet")
    assert texts("parquet", tmp_path) == ["", "", "b"]


def test_a_parquet_file_may_have_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"text": ["a"]}), "a.parquet")
    for name in (b"caf\xe9.parquet", b"file:a.parquet", b"s3:a%20#b.parquet"):
        Path(os.fsdecode(name)).write_bytes(Path("a.parquet").read_bytes())
        assert texts("parquet", Path(os.fsdecode(name))) == ["a"]


@pytest.mark.parametrize("reader", ["jsonl", "parquet"])
def test_fields_of_null_are_null_and_a_row_has_its_title(reader, tmp_path):
    path = rows_in(tmp_path, reader, [{"title": "A", "meta": {"text": "a"}}, {"title": "B", "meta": None}])
    found, _ = read(config(reader, path, options={"text": ["title", "meta.text"], "id": "title", "title": None}))
    assert [(document.id, document.text) for document in found] == [("A", "A\na"), ("B", "B")]
    assert texts(reader, path, text="meta.text") == ["a", ""]

    path = rows_in(tmp_path, reader, [{"title": "A", "text": "a"}, {"title": None, "text": "b"}])
    found, _ = read(config(reader, path))
    assert [document.title for document in found] == ["A", ""]
    found, _ = read(config(reader, path, options={"text": ["title", "text"]}))
    assert [(document.title, document.text) for document in found] == [("A", "A\na"), ("", "b")]


@pytest.mark.parametrize("reader", ["jsonl", "parquet"])
@pytest.mark.parametrize(("key", "value"), [("text", "gone"), ("id", "gone"), ("where", "gone > 2026")])
def test_a_missing_field_names_the_key_that_chose_it_and_one_of_others_these(reader, key, value, tmp_path):
    path = rows_in(tmp_path, reader, [{"text": "a"}])
    with pytest.raises(InputError, match=f"set corpus.options.{key}{'=text' * (key == 'text')}$"):
        read(config(reader, path, options={key: value}))
    (tmp_path / "gone=1").mkdir()  # as Hive has it
    path = rows_in(tmp_path / "gone=1", reader, [{"text": "a"}])
    with refused(InputError, f"corpus.path={path.parent},"):
        read(config(reader, path, options={key: value}))
    path = rows_in(tmp_path, reader, [{"text": {"role": "a", "said": "b"}}])
    with refused(InputError, r"corpus\.options\.text=text\.FIELD"):
        read(config(reader, path))


@pytest.mark.parametrize("reader", ["jsonl", "parquet"])
@pytest.mark.parametrize("split_bytes", [2**20, 2**26])
def test_a_limit_cuts_a_file_below_the_size_of_a_split(reader, split_bytes, tmp_path):
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
def test_numbers_are_compared_whole(value, wanted, found, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "One.", "n": value}) + "\n")
    assert len(read(config("jsonl", tmp_path / "a.jsonl", options={"where": f"n == {wanted}"}))[0]) == found


@pytest.mark.parametrize(("where", "kept"), [("n > 0", "b"), ("n >= -3.0", "abc"), ("n < 5", "ac"), ("n != 10", "acd")])
def test_numbers_in_words_are_compared_as_numbers(where, kept, tmp_path):
    """Those of CSV and of attributes have no other form."""
    numbers = dict(zip("abcd", ["0", "10", "-3", ""], strict=True))
    (tmp_path / "a.csv").write_text("text,n\n" + "".join(f"{text},{n}\n" for text, n in numbers.items()))
    assert "".join(texts("csv", tmp_path / "a.csv", where=where)) == kept
    rows = (f'<row Body="{text}" ' + f'Score="{n}" ' * bool(n) + "/>" for text, n in numbers.items())
    (tmp_path / "Posts.xml").write_text("<posts>\n" + "\n".join(rows) + "\n</posts>")
    assert "".join(texts("stackexchange", tmp_path, where=where.replace("n", "Score"))) == kept.replace("d", "")


# CSV, TSV, Arrow and tables with a log: held to the readers of their fields.


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")) | st.sampled_from('\n",;'))


def texts(reader, path, **options):
    return [document.text for document in read(config(reader, path, options=options))[0]]


@given(rows=st.lists(WORDS, min_size=1, max_size=9))
def test_csv_gives_what_its_writer_and_arrow_have(rows, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["id", "text"], *enumerate(rows)])
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    table = pyarrow.csv.read_csv(path, parse_options=options, convert_options=pyarrow.csv.ConvertOptions(
        column_types={"text": pa.string()}, strings_can_be_null=False))  # fmt: skip
    assert texts("csv", path) == rows == table["text"].to_pylist()


def test_quotation_marks_of_tsv_are_text_unless_typed(tmp_path):
    rows = ['"Never," said he.', 'A 5" pipe', '"all of it"']
    (tmp_path / "a.tsv").write_text("text\tn\n" + "".join(f"{row}\t1\n" for row in rows))
    assert texts("csv", tmp_path, separator="\t") == rows
    with refused(InputError, "CSV", line=2):
        texts("csv", tmp_path, separator="\t", quotes=True)


@pytest.mark.parametrize(("content", "line", "cure"), [
    ("text,text\na,b\n", 1, "2 columns named text"), ("# exported\nid,text\n1,a\n", 1, "among # exported.*header"),
    ('text,n\n"say \\"no\\" to",1\n', 2, "doubled"), ("text\nHello, world\n", 2, "corpus.options.separator")]
)  # fmt: skip
def test_a_table_that_is_none_says_what_to_do(content, line, cure, tmp_path):
    (tmp_path / "a.csv").write_text(content)
    with refused(InputError, cure, path=str(tmp_path / "a.csv"), line=line):
        texts("csv", tmp_path)


def test_a_carriage_return_within_a_line_ends_no_row(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'id,text\n1,one\rtwo\n2,"three\rfour"\n')
    assert [text.splitlines() for text in texts("csv", tmp_path)] == [["one", "two"], ["three", "four"]]


def test_a_text_may_be_as_long_as_a_document(tmp_path):
    (tmp_path / "a.csv").write_text(f'text\n"{"word " * 200_000}"\n')
    assert len(texts("csv", tmp_path)[0]) == 1_000_000


def test_columns_without_names_are_numbered(tmp_path):
    (tmp_path / "a.tsv").write_text("1\tOne.\n2\tTwo.\n")
    assert texts("csv", tmp_path, separator="\t", header=False, text="1") == ["One.", "Two."]
    with refused(InputError, "1, One.", line=1):
        texts("csv", tmp_path, text="text")


KINDS = [pa.string(), pa.large_string(), pa.string_view()]
KINDS += [pa.dictionary(pa.int32(), kind) for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_every_kind_of_text_in_arrow_is_read(new, kind, tmp_path):
    values = ["One.", "Two.", "One."]
    column = pa.array(values, kind) if not pa.types.is_dictionary(kind) else pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 0], kind.index_type), pa.array(["One.", "Two."], kind.value_type))  # fmt: skip
    table = pa.table({"text": column})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, new(sink, table.schema) as writer:
        writer.write_table(table)
    assert texts("arrow", tmp_path) == values


def test_a_folder_of_datasets_is_read_whole_and_without_its_caches(tmp_path):
    names = ["data-00000-of-00001.arrow", "cache-abc.arrow"]
    for name in names:
        pyarrow.feather.write_feather(pa.table({"text": [name]}), tmp_path / name)
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": names[0]}]}))
    assert texts("arrow", tmp_path) == names[:1]
    (tmp_path / names[0]).unlink()
    with refused(InputError, names[0], path=str(tmp_path)):
        texts("arrow", tmp_path)


def test_the_splits_of_a_dictionary_of_datasets_are_named(tmp_path):
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        pyarrow.feather.write_feather(pa.table({"text": [split]}), tmp_path / split / "data-00000-of-00001.arrow")
    notes = open_corpus(config("arrow", tmp_path), "").splits(1 << 20).notes
    assert {note.split(",")[0] for note in notes} >= {"files of the split test", "files of the split train"}


def delta(folder, commits):
    (folder / "_delta_log").mkdir(exist_ok=True)
    for version, actions in enumerate(commits):
        path = folder / "_delta_log" / f"{version:020}.json"
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def table(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": [name]}), folder / name)


@pytest.mark.parametrize("where", ["", "/*.parquet", "/a.parquet"])
@pytest.mark.parametrize("here", [False, True])
def test_of_a_delta_table_the_live_files_are_read(here, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = Path(f".{where}") if here else Path(f"{tmp_path}{where}")
    table(tmp_path, "a.parquet", "b.parquet", "d=1 x/c.parquet", "stray.parquet")
    commits = [[{"add": {"path": name}} for name in ("a.parquet", "b.parquet")],
               [{"remove": {"path": "b.parquet"}}, {"add": {"path": "d=1%20x/c.parquet"}}]]  # fmt: skip
    delta(tmp_path, commits)
    wanted = ["a.parquet", "d=1 x/c.parquet"] if not where else ["a.parquet"]
    assert sorted(texts("parquet", place)) == wanted
    # What an engine has gathered of the first two versions, which it then may delete.
    rows = [{"add": {"path": "a.parquet"}, "remove": None}, {"add": {"path": "d=1%20x/c.parquet"}, "remove": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "_delta_log" / f"{1:020}.checkpoint.parquet")
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    assert sorted(texts("parquet", place)) == wanted
    (tmp_path / "_delta_log" / f"{1:020}.checkpoint.parquet").unlink()
    with refused(InputError, "version 0", path=str(tmp_path)):
        texts("parquet", tmp_path)
    delta(tmp_path, [[{"add": {"path": name}} for name in ("gone.parquet", "d=2/b.parquet", "d=1 x/c.parquet")]])
    assert texts("parquet", tmp_path / "d=1*" / "*.parquet") == ["d=1 x/c.parquet"], "alone of its table"


@pytest.mark.parametrize("more", [{"add": {"path": "a.parquet", "deletionVector": {"x": 1}}},
                                  {"add": {"path": "gone.parquet"}}, {"add": {"path": "file:///else/b.parquet"}},
                                  {"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}}])  # fmt: skip
def test_a_delta_table_that_needs_more_than_its_files_is_refused(more, tmp_path):
    table(tmp_path, "a\u0301.parquet")
    delta(tmp_path, [[{"add": {"path": "%C3%A1.parquet"}}]])
    assert texts("parquet", tmp_path) == ["a\u0301.parquet"]
    delta(tmp_path, [[{"add": {"path": "%C3%A1.parquet"}}, more]])
    for place in (tmp_path, tmp_path / "*.parquet"):
        with refused(InputError, "Delta", path=str(tmp_path)):
            texts("parquet", place)


def test_tables_of_iceberg_and_hudi_are_refused_by_name(tmp_path):
    (tmp_path / "t").mkdir()
    table(tmp_path / "t", "data/a.parquet")
    (tmp_path / "t" / "metadata").mkdir()
    (tmp_path / "t" / "metadata" / "v1.metadata.json").write_text("{}")
    for place in (tmp_path / "t", tmp_path / "t" / "data", tmp_path / "t" / "data" / "a.parquet"):
        with refused(InputError, "Iceberg"):
            texts("parquet", place)
    pq.write_table(pa.table({"_hoodie_commit_time": ["1"], "text": ["x"]}), tmp_path / "h.parquet")
    with refused(InputError, "Hudi", path=str(tmp_path / "h.parquet")):
        texts("parquet", tmp_path / "h.parquet")
    (tmp_path / "t" / "metadata" / "v1.metadata.json").rename(tmp_path / "t" / "metadata" / "other")
    (tmp_path / "t" / ".hoodie").mkdir()
    with refused(InputError, "Hudi", path=str(tmp_path / "t")):
        texts("parquet", tmp_path / "t" / "data" / "a.parquet")


@pytest.mark.parametrize("reader", ["parquet", "jsonl"])
def test_what_is_hidden_to_spark_is_left_out_of_a_folder(reader, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("_temporary", "date=2026", "_x=1"):
        (tmp_path / folder).mkdir()
        rows_in(tmp_path / folder, reader, [{"text": folder}])
    rows_in(tmp_path, reader, [{"text": "a"}]).rename(tmp_path / f"x_a.{reader}")
    for place in (tmp_path, Path(".")):
        found, log = read(config(reader, place))
        assert sorted(document.text for document in found) == ["_x=1", "a", "date=2026"]
        assert log.notes == {"hidden files (_NAME) left out": 1}
    assert texts(reader, tmp_path / "_temporary") == ["_temporary"]
    assert sorted(texts(reader, Path(shutil.make_archive("all", "zip", tmp_path)))) == ["_x=1", "a", "date=2026"]


def test_of_a_search_index_the_pages_are_read_and_redirects_counted(tmp_path):
    """As published since 2026: a redirect has an entry of its own, without a text."""
    pages = '0, "text": "One."', '0, "page_type": "redirect"', '0, "content_model": "json"', '14, "text": "Two."'
    rows = (f'{{"index": {{"_id": {n}}}}}\n{{"namespace": {page}}}\n' for n, page in enumerate(pages))
    (tmp_path / "xwiki_content-20260830-00000.json").write_text("".join(rows))
    found, log = read(config("cirrussearch", tmp_path))
    assert [(document.id, document.text) for document in found] == [("c:0", "One."), ("c:2", "")]
    assert log == {"redirect": 1, "namespace": 1}


SECTIONS = [{"has_parts": [{"value": "One."}, {"type": "x"}]}, {"has_parts": [{"value": "Two."}]}, {"name": "n"}]
ROW = {"sections": SECTIONS, "scores": [0.9, 0.1], "langs": ["en", "fr"]}


@pytest.mark.parametrize("reader", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("where", "kept"),
    [("scores.0 > 0.5", True), ("scores.1 > 0.5", False), ("scores.7 > 0", False), ("langs == fr", True),
     ("langs != fr", False), ("langs != de", True), ("sections.has_parts.value == Two.", True)],
)  # fmt: skip
def test_names_reach_into_lists(reader, where, kept, tmp_path):
    path = rows_in(tmp_path, reader, [ROW])
    assert texts(reader, path, text="sections.has_parts.value", where=where) == (["One.\nTwo."] if kept else [])


@pytest.mark.parametrize("reader", ["jsonl", "parquet"])
def test_fields_of_the_items_of_a_list_are_read_item_by_item(reader, tmp_path):
    said = [{"role": "user", "said": {"text": ["Hi.", "You?"]}}, {"role": "bot", "said": None}, {"role": None}]
    row = {"chats": [{"turns": said}, {"turns": said[:1]}], "meta": {"b": ["1", "2"], "a": ["3", "4"]}}
    path = rows_in(tmp_path, reader, [row, {"chats": [], "meta": None}])
    wanted = "user\nHi.\nYou?\nbot\nuser\nHi.\nYou?\n3\n4\n1\n2"
    assert texts(reader, path, text=["chats.turns.role", "chats.turns.said.text", "meta.a", "meta.b"]) == [wanted, ""]


def test_names_reach_into_maps_of_arrow_and_one_that_no_item_has_is_named(tmp_path):
    column = pa.array([[("en", "One."), ("fr", "Un.")], [("en", "Two.")]], pa.map_(pa.string(), pa.string()))
    pq.write_table(pa.table({"by": column}), tmp_path / "a.parquet")
    assert texts("parquet", tmp_path, text="by.fr") == ["Un.", ""]
    with refused(InputError, "sections.none"):
        texts("jsonl", rows_in(tmp_path, "jsonl", [ROW]), text="sections.none")


def test_the_separator_that_excel_states_is_read(tmp_path):
    (tmp_path / "a.csv").write_text('sep=;\nid;text\n1;"One; two, three"\n')
    ((document,), _) = read(config("csv", tmp_path))
    assert (document.text, document.id) == ("One; two, three", f"{tmp_path}/a.csv line 3")


def test_comments_of_stack_exchange_are_read_alone_and_next_to_posts_left_out(tmp_path):
    (tmp_path / "Comments.xml").write_text('<comments>\n<row Id="1" Text="I agree." />\n</comments>\n')
    assert [document.text for document in read(config("stackexchange", tmp_path))[0]] == ["I agree."]
    (tmp_path / "Posts.xml").write_text('<posts>\n<row Id="2" Body="&lt;p&gt;Why?&lt;/p&gt;" />\n</posts>\n')
    found, log = read(config("stackexchange", tmp_path))
    assert ([document.text for document in found], log.notes) == (["Why?"], {".xml files left out": 1})


TREEBANK = """# newdoc id = n01
# sent_id = 1
# text = Vámonos al mar.
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\t_\t_\t_\t_\t_\t_\t_\t_
2\tnos\t_\t_\t_\t_\t_\t_\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\t_\t_\t_\t_\t_\t_\t_\t_
4\tel\t_\t_\t_\t_\t_\t_\t_\t_
5\tmar\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
5.1\tx\t_\t_\t_\t_\t_\t_\t_\t_
6\t.\t_\t_\t_\t_\t_\t_\t_\t_

# newdoc
# newpar
"""


def test_sentences_of_a_treebank_are_stated_or_made_of_their_words(tmp_path):
    stated = TREEBANK.split("\n", 3)[3]
    (tmp_path / "a.conllu").write_text(TREEBANK + stated)
    (first, second), _ = read(config("conllu", tmp_path))
    assert first.id == "n01"
    assert first.text == second.text == conllu.parse(TREEBANK)[0].metadata["text"]
    assert first.sentence_lines


def test_columns_of_a_treebank_are_those_that_its_first_line_names(tmp_path):
    rows = re.sub(r"(\t_){7}", "\t*", TREEBANK).replace("# text =", "#")
    (tmp_path / "a.conllup").write_text(f"# global.columns = ID FORM X:Y MISC\n{rows}")
    assert [document.text for document in read(config("conllu", tmp_path))[0]] == ["Vámonos al mar."]


MARKS = ["The/DT lamp/NN shines/VBZ", "(S (NP (DT The) (NN lamp)) (VP (VBZ shines)))", "<p>The lamp shines.</p>"]
MARKS += ["The lamp shines.\tLa lampe luit.", 'a1,"The lamp, it shines.",0', "utt-007 A LAMP SHINES", " = A lamp ="]
MARKS += ["GEN 1:3 And the lamp shines.", "A long line.\nOf some words.\n\n@highlight\n\nThe lamp shines."]
MARKS += ["A lamp. ||| Une.", "__label__a A lamp.", "Ann, [1.2 14:03]\nA lamp.", "0:12\nA lamp.", "\\section{A}\nA."]

UNMARKED = ["The lamp (an old one) shines and shines, *really*, and does not rest.", "वह दिल्ली में रहता है|"]
UNMARKED += ["Long, and cold,", "2023年 月曜日、ランプ", "In 10, 1:10 is\nJob 3:16\n= 2"]
UNMARKED += ["[0:30.15] is late\nA lamp.", "{1}{2} are sets\nof A", "[INFORMATION]\nThe old lamp shines: so"]
UNMARKED += ["Q: Why?\nA: a@b.de knows.\n\n@a\n" + "Yes.\n" * 29]


@pytest.mark.parametrize("text", [*MARKS, *UNMARKED])
def test_marks_of_a_format_at_many_words_are_noted(text, tmp_path):
    (tmp_path / "a.txt").write_text(f"{text}\n" * 20)
    noted = {MARKED in read(config(reader, tmp_path))[1].notes for reader in ("text", "lines", "books")}
    assert noted == {text in MARKS}


NAMES = "a.conllu b.srt c.vtt d.tex e.html f.csv g.warc.gz h.pdf i.zim a.jsonl a.CSV.gz b.tsv a.rst a.mbox a.po a.cha"


@pytest.mark.parametrize("name", NAMES.split())
@pytest.mark.parametrize("reader", ["text", "books", "lines"])
def test_what_is_not_prose_by_its_name_is_refused(reader, name, tmp_path):
    (tmp_path / name).write_text("Some text.")
    for place in (tmp_path / name, tmp_path / f"*{Path(name).suffix}"):
        with refused(ConfigError, key="corpus.path"):
            read(config(reader, place))
    with refused(InputError, Path(name.lower().removesuffix(".gz")).suffix, key="corpus.path"):
        read(config(reader, tmp_path))


@pytest.mark.parametrize(
    "text",
    ["1\n00:00:01,000 --> 00:00:03,500\nWords.\n", "WEBVTT\n\n00:01.000 --> 00:04.000\nWords.\n", TREEBANK,
     '{"text": "Words."}\n', "% a comment\n\\documentclass{article}\n", "WARC/1.0\r\nWARC-Type: warcinfo\r\n",
     "<TEI><text/></TEI>", '[\n {"text": "Words."}]', "From a@b Mon Jan 5 10:00:00 2026\nWords.\n", 'msgid "Words"\n',
     "<doc id=\"1\">\n<s>\nWords\tNNS\tword\nrun\tVB\trun\n", "From: a@b\nSubject: c\n\nWords.\n",
     "To: a@b,\n c@d\nDate: c\n\nSo\n", "[0:12.00]Words.\n" * 2, "{0}{25}W.\n" * 2, "[Script Info]\n; A\n", "\\input a",
     "\\id GEN\n\\v 1 Words.\n", "# global.columns = ID FORM\n1\tWords\n", '<doc id="7">\nWords.\n', "a b O\n" * 3,
     "BEGIN:VCARD\n", "De\xa0: A <a@b>\nÀ : c@d\n\nSo\n", "a: b\nc:\n- d\n", "@book{a,\n t={W}}"],
)  # fmt: skip
@pytest.mark.parametrize("reader", ["text", "books", "lines"])
def test_what_is_not_prose_by_its_beginning_is_refused(reader, text, tmp_path):
    (tmp_path / "a.txt").write_text(text, newline="")
    with refused(InputError, "use ", path=str(tmp_path / "a.txt")):
        read(config(reader, tmp_path))


def test_numbers_of_lines_are_left_out_once_it_is_said(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"{n}\tSentence {n} of all.\n" for n in range(1, 50)))
    for reader, options in (("lines", {}), ("text", {"document": "line"})):
        with refused(InputError, "corpus.options.numbered=true", path=str(tmp_path / "a.txt")):
            texts(reader, tmp_path, **options)
        found = "\n".join(texts(reader, tmp_path, numbered=True, **options))
        assert found == "\n".join(f"Sentence {n} of all." for n in range(1, 50))
        assert "1\tSentence" in "\n".join(texts(reader, tmp_path, numbered=False, **options))
    (tmp_path / "a.txt").write_text("".join(f"{n}\tword\t{99 - n}\n" for n in range(1, 50)))
    with refused(InputError, "table", path=str(tmp_path / "a.txt")):
        texts("lines", tmp_path)
    (tmp_path / "a.txt").write_bytes(b"1\tcaf\xe9\n" * 50)
    assert read(config("text", tmp_path, encoding="utf-8", on_error="skip"))[1] == {"broken": 1}
