"""CSV, TSV, Arrow and tables with a log: held to the readers of their fields."""

import csv
import json
from pathlib import Path
from typing import Any

import conllu
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError, InputError
from tests.pipeline.readers.reading import config, read, rows_in
from tests.support.refusals import refused

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")) | st.sampled_from('\n",;'))


def texts(reader: str, path: Path, **options: Any) -> list[str]:
    return [document.text for document in read(config(reader, path, options=options))[0]]


@given(rows=st.lists(WORDS, min_size=1, max_size=9))
def test_csv_gives_what_its_writer_and_arrow_have(rows: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["id", "text"], *enumerate(rows)])
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    table = pyarrow.csv.read_csv(path, parse_options=options, convert_options=pyarrow.csv.ConvertOptions(
        column_types={"text": pa.string()}, strings_can_be_null=False))  # fmt: skip
    assert texts("csv", path) == rows == table["text"].to_pylist()


def test_quotation_marks_of_tsv_are_text_unless_typed(tmp_path: Path) -> None:
    rows = ['"Never," said he.', 'A 5" pipe', '"all of it"']
    (tmp_path / "a.tsv").write_text("text\tn\n" + "".join(f"{row}\t1\n" for row in rows))
    assert texts("csv", tmp_path, separator="\t") == rows
    with refused(InputError, "CSV", line=2):
        texts("csv", tmp_path, separator="\t", quotes=True)


def test_a_text_may_be_as_long_as_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f'text\n"{"word " * 200_000}"\n')
    assert len(texts("csv", tmp_path)[0]) == 1_000_000


@pytest.mark.parametrize(
    ("content", "line", "on_error"),
    [("text,n\na\n", 2, "fail"), ('text\n"a\nb\nc\n', 4, "skip"), ('text\n"a" b\n', 2, "fail")],
)
def test_a_row_that_is_no_csv_is_named(content: str, line: int, on_error: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    with refused(InputError, path=str(tmp_path / "a.csv"), line=line):
        read(config("csv", tmp_path, on_error=on_error))


def test_columns_without_names_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\tOne.\n2\tTwo.\n")
    assert texts("csv", tmp_path, separator="\t", header=False, text="1") == ["One.", "Two."]
    with refused(InputError, "1, One.", line=2):
        texts("csv", tmp_path, text="text")


KINDS = [pa.string(), pa.large_string(), pa.string_view()]
KINDS += [pa.dictionary(pa.int32(), kind) for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_every_kind_of_text_in_arrow_is_read(new: Any, kind: pa.DataType, tmp_path: Path) -> None:
    values = ["One.", "Two.", "One."]
    column = pa.array(values, kind) if not pa.types.is_dictionary(kind) else pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 0], kind.index_type), pa.array(["One.", "Two."], kind.value_type))  # fmt: skip
    table = pa.table({"text": column})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, new(sink, table.schema) as writer:
        writer.write_table(table)
    assert texts("arrow", tmp_path) == values


def test_a_folder_of_datasets_is_read_without_its_caches(tmp_path: Path) -> None:
    for name in ("data-00000-of-00001.arrow", "cache-abc.arrow"):
        with (
            pa.OSFile(str(tmp_path / name), "wb") as sink,
            pa.ipc.new_stream(sink, pa.schema({"text": pa.string()})) as to,
        ):
            to.write_table(pa.table({"text": [name]}))
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    assert texts("arrow", tmp_path) == ["data-00000-of-00001.arrow"]


def delta(folder: Path, commits: list[list[dict[str, Any]]]) -> None:
    (folder / "_delta_log").mkdir(exist_ok=True)
    for version, actions in enumerate(commits):
        path = folder / "_delta_log" / f"{version:020}.json"
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def table(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": [name]}), folder / name)


@pytest.mark.parametrize("where", ["", "/*.parquet", "/a.parquet"])
def test_of_a_delta_table_the_live_files_are_read(where: str, tmp_path: Path) -> None:
    table(tmp_path, "a.parquet", "b.parquet", "d=1 x/c.parquet", "stray.parquet")
    commits = [[{"add": {"path": name}} for name in ("a.parquet", "b.parquet")],
               [{"remove": {"path": "b.parquet"}}, {"add": {"path": "d=1%20x/c.parquet"}}]]  # fmt: skip
    delta(tmp_path, commits)
    wanted = ["a.parquet", "d=1 x/c.parquet"] if not where else ["a.parquet"]
    assert sorted(texts("parquet", Path(f"{tmp_path}{where}"))) == wanted
    # What an engine has gathered of the first two versions, which it then may delete.
    rows = [{"add": {"path": "a.parquet"}, "remove": None}, {"add": {"path": "d=1%20x/c.parquet"}, "remove": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "_delta_log" / f"{1:020}.checkpoint.parquet")
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    assert sorted(texts("parquet", Path(f"{tmp_path}{where}"))) == wanted
    (tmp_path / "_delta_log" / f"{1:020}.checkpoint.parquet").unlink()
    with refused(InputError, "version 0", path=str(tmp_path)):
        texts("parquet", tmp_path)


@pytest.mark.parametrize("more", [{"add": {"path": "a.parquet", "deletionVector": {"x": 1}}},
                                  {"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}}])  # fmt: skip
def test_a_delta_table_that_needs_more_than_its_files_is_refused(more: dict[str, Any], tmp_path: Path) -> None:
    table(tmp_path, "a.parquet")
    delta(tmp_path, [[{"add": {"path": "a.parquet"}}, more]])
    with refused(InputError, "Delta", path=str(tmp_path)):
        texts("parquet", tmp_path)


def test_tables_of_iceberg_and_hudi_are_refused_by_name(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("reader", ["parquet", "jsonl"])
def test_what_is_hidden_to_spark_is_left_out_of_a_folder(reader: str, tmp_path: Path) -> None:
    for folder in ("_temporary", "date=2026", "_x=1"):
        (tmp_path / folder).mkdir()
        rows_in(tmp_path / folder, reader, [{"text": folder}])
    found, log = read(config(reader, tmp_path))
    assert sorted(document.text for document in found) == ["_x=1", "date=2026"]
    assert log.notes == {"hidden files (_NAME) left out": 1}
    assert texts(reader, tmp_path / "_temporary") == ["_temporary"]


SECTIONS = [{"has_parts": [{"value": "One."}, {"type": "x"}]}, {"has_parts": [{"value": "Two."}]}, {"name": "n"}]
ROW = {"sections": SECTIONS, "scores": [0.9, 0.1], "langs": ["en", "fr"]}


@pytest.mark.parametrize("reader", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("where", "kept"),
    [("scores.0 > 0.5", True), ("scores.1 > 0.5", False), ("scores.7 > 0", False), ("langs == fr", True),
     ("langs != fr", False), ("langs != de", True), ("sections.has_parts.value == Two.", True)],
)  # fmt: skip
def test_names_reach_into_lists(reader: str, where: str, kept: bool, tmp_path: Path) -> None:
    path = rows_in(tmp_path, reader, [ROW])
    assert texts(reader, path, text="sections.has_parts.value", where=where) == (["One.\nTwo."] if kept else [])


def test_names_reach_into_maps_of_arrow(tmp_path: Path) -> None:
    column = pa.array([[("en", "One."), ("fr", "Un.")]], pa.map_(pa.string(), pa.string()))
    pq.write_table(pa.table({"by": column}), tmp_path / "a.parquet")
    assert texts("parquet", tmp_path, text="by.fr") == ["Un."]


def test_a_field_that_no_item_has_is_named(tmp_path: Path) -> None:
    with refused(InputError, "sections.none"):
        texts("jsonl", rows_in(tmp_path, "jsonl", [ROW]), text="sections.none")


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


def test_sentences_of_a_treebank_are_stated_or_made_of_their_words(tmp_path: Path) -> None:
    stated = TREEBANK.split("\n", 3)[3]
    (tmp_path / "a.conllu").write_text(TREEBANK + stated)
    (first, second), _ = read(config("conllu", tmp_path))
    assert first.id == "n01"
    assert first.text == second.text == conllu.parse(TREEBANK)[0].metadata["text"]
    assert first.sentence_lines


@pytest.mark.parametrize(
    "name", ["a.conllu", "b.srt", "c.vtt", "d.tex", "e.html", "f.csv", "g.warc.gz", "h.pdf", "i.zim"]
)
@pytest.mark.parametrize("reader", ["text", "books", "lines"])
def test_what_is_not_prose_by_its_name_is_refused(reader: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("Some text.")
    for place in (tmp_path / name, tmp_path / f"*{Path(name).suffix}"):
        with refused(ConfigError, key="corpus.path"):
            read(config(reader, place))
    with refused(InputError, Path(name.removesuffix(".gz")).suffix, key="corpus.path"):
        read(config(reader, tmp_path))


@pytest.mark.parametrize(
    "text",
    ["1\n00:00:01,000 --> 00:00:03,500\nWords.\n", "WEBVTT\n\n00:01.000 --> 00:04.000\nWords.\n", TREEBANK,
     "% a comment\n\\documentclass{article}\n", "WARC/1.0\r\nWARC-Type: warcinfo\r\n", "<TEI><text/></TEI>"],
)  # fmt: skip
@pytest.mark.parametrize("reader", ["text", "books", "lines"])
def test_what_is_not_prose_by_its_beginning_is_refused(reader: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text, newline="")
    with refused(InputError, "use ", path=str(tmp_path / "a.txt")):
        read(config(reader, tmp_path))


def test_numbers_of_lines_are_left_out_once_it_is_said(tmp_path: Path) -> None:
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
