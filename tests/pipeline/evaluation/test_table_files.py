"""Task files in other forms than a folder of TSV."""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from dataclasses import replace
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet as pq

from pipeline.config import TaskConfig
from pipeline.errors import InputError
from pipeline.evaluation import examples, table_files
from tests.pipeline.evaluation.columns import read_columns
from tests.support.refusals import refused

OWN = TaskConfig(name="own", columns=["text"], labels=["0", "1"], metrics=["accuracy"])
ROWS = [{"text": "good", "label": 1, "more": None}, {"text": "b\u2028d\n", "label": 0, "more": 2}]


PACKINGS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard.compress}


@pytest.mark.parametrize("suffix", PACKINGS)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "nested.json", "a.csv"])
def test_a_task_of_ones_own_may_be_json_or_csv(tmp_path, name, suffix):
    content = {
        "a.json": json.dumps(ROWS),
        "a.jsonl": "\n".join("\x1e" + json.dumps(row, ensure_ascii=False) for row in ROWS) + "\n",
        "nested.json": json.dumps({"other": [], "mine": ROWS}),
        "a.csv": 'more,text,label\n,good,1\n2,"b\u2028d\n",0\n',
    }[name]
    (tmp_path / (name + suffix)).write_bytes(PACKINGS[suffix](content.encode()))
    task = replace(OWN, key="mine" if name == "nested.json" else None)
    found = read_columns(tmp_path, task, name + suffix)
    assert (found.texts[0], found.labels) == (["good", "b\u2028d"], [1, 0])


def parquet(rows, metadata=None):
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(metadata), sink := pa.BufferOutputStream())
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("name", ["a.parquet", "a.json", "a.jsonl", "a.tsv", "a.csv", "a"])
@pytest.mark.parametrize("form", ["parquet", "lines", "list"])
def test_rows_are_read_by_what_they_are(tmp_path, name, form):
    lines = "\n".join(map(json.dumps, ROWS))
    content = {"parquet": parquet(ROWS), "lines": lines.encode(), "list": json.dumps(ROWS, indent=1).encode()}
    (tmp_path / name).write_bytes(content[form])
    found = read_columns(tmp_path, OWN, name)
    assert (found.texts[0], found.labels) == (["good", "b\u2028d"], [1, 0])


@pytest.mark.parametrize(("name", "divider"), [("a.tsv", ","), ("a.tsv", ";"), ("a.txt", ","), ("a.csv", "\t")])
def test_columns_are_divided_by_what_divides_their_names(tmp_path, name, divider):
    (tmp_path / name).write_text(f'more{divider}text{divider}label\n1{divider}"so{divider}good"{divider}1\n')
    found = read_columns(tmp_path, OWN, name)
    assert (found.texts[0], found.labels) == ([f"so{divider}good"], [1])


@pytest.mark.parametrize(("name", "divider"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_lines_may_end_by_a_carriage_return_alone(tmp_path, name, divider):
    (tmp_path / name).write_text(f"text{divider}label\rgood{divider}1\rb{divider}0\r")
    assert read_columns(tmp_path, OWN, name).texts[0] == ["good", "b"]
    (tmp_path / name).write_text(f"{'t' * 999}{divider}label\ngood{divider}1\n")
    with refused(InputError) as raised:
        read_columns(tmp_path, OWN, name)
    assert len(str(raised.value)) < 600


def test_classes_of_a_parquet_file_have_its_names(tmp_path):
    about = {"info": {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}}}
    (tmp_path / "a").write_bytes(parquet(ROWS, {"huggingface": json.dumps(about)}))
    assert read_columns(tmp_path, replace(OWN, labels=["pos", "neg"]), "a").labels == [0, 1]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([Decimal("1.50"), Decimal(2)], ["1.50", "2.00"]),
        ([np.float32(0.7), np.float32(1)], ["0.7", "1.0"]),
        ([date(2020, 1, 1)] * 2, ["2020-01-01"]),
        ([b"b"] * 2, ["b"]),
    ],
)
def test_columns_of_any_type_are_what_they_show(tmp_path, values, labels):
    rows = [{"text": text, "label": value} for text, value in zip([b"a", "é".encode()], values, strict=True)]
    (tmp_path / "a").write_bytes(parquet([*rows, rows[0] | {"text": b"\xff"}]))  # which is no text
    found = read_columns(tmp_path, replace(OWN, labels=[*labels, "z"]), "a")
    assert (found.texts[0], found.labels, len(found.malformed)) == (["a", "é"], [0, len(labels) - 1], 1)


PACKED = gzip.compress(b"text,label\ngood,1\n" * 9, mtime=0)
with zipfile.ZipFile(SPREADSHEET := io.BytesIO(), "w") as file:  # as Excel's are
    file.writestr("xl/workbook.xml", "<workbook/>")
BROKEN = [("a", parquet(ROWS)[:-9], "Parquet"), ("a.csv", SPREADSHEET.getvalue(), "export it as CSV")]
BROKEN += [("a.csv.gz", PACKED[:cut], r"a\.csv\.gz: truncated at byte") for cut in (5, -3)]
BROKEN += [("a.json", b'{"text": ["a"], "label": [1]}', "a line"), ("a.json", b'{"a": [{}], "b": [{}]}', r": a, b$")]
BROKEN += [("a.csv", b'text,label\n"not closed,1\nsome "quoted" words,0\n', None)]
BROKEN += [("a.csv", b'text,label\n"a \\"good\\" film",1\n', None)]
BROKEN += [("a.jsonl", b'{"text": "a", "text": "b", "label": 1}\n', None), ("a.json", b"[]", "no objects")]
BROKEN += [("a.json", '[{"c\u00e2u": "a", "ca\u0302u": "b", "text": "c", "label": 1}]'.encode(), None)]


@pytest.mark.parametrize(("name", "content", "said"), BROKEN)
def test_what_is_broken_or_can_be_read_in_two_ways_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with refused(InputError, said, path=str(tmp_path / name)):
        read_columns(tmp_path, OWN, name)


def test_a_csv_text_may_be_long_and_blank_lines_are_no_rows(tmp_path):
    text = "a long text " * 20_000
    for names in ("\ntext,label", "sep=,\ntext,label", '"sep=,"\r\ntext,label'):
        (tmp_path / "a.csv").write_text(f"{names}\n\n{text},1\n\n")
        found = read_columns(tmp_path, OWN, "a.csv")
        assert (found.texts[0], found.labels, found.malformed) == ([text.strip()], [1], [])


def test_a_damaged_member_of_a_zip_file_is_named(tmp_path):
    path = tmp_path / "RTE.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("RTE/train.tsv", "index\tsentence1\tsentence2\tlabel\n" * 50)
    raw = path.read_bytes()
    path.write_bytes(raw[:50] + b"\xff" * 10 + raw[60:])
    with refused(InputError, path=str(path)):
        table_files.find(tmp_path, "RTE", "train.tsv")


def test_rows_without_a_key_are_named_and_broken_json_too(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "1"}\n{"text": "a"}\n')
    assert read_columns(tmp_path, OWN, "a.jsonl").malformed == [f"{tmp_path / 'a.jsonl'}, row 2: 'label' is missing"]
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "1"}\n{"text":\n')
    with refused(InputError, "JSON", path=str(tmp_path / "a.jsonl"), line=2):
        read_columns(tmp_path, OWN, "a.jsonl")
    (tmp_path / "a.json").write_text('{"x": [], "y": []}')
    with refused(InputError, "x, y", key="task.key"):
        read_columns(tmp_path, OWN, "a.json")
    (tmp_path / "b.csv").write_text("text,label\na,1\nb,\n")
    rows = [{"text": "a", "label": 1.0}, {"text": "b", "label": float("nan")}]
    (tmp_path / "b").write_bytes(parquet(rows))
    (tmp_path / "b.json").write_text(json.dumps(rows))
    each = (("b.csv", ["0", "1"]), ("b", ["0", "1"]), ("b", ["0.0", "1.0"]), ("b", ["1", "1.0"]))
    for name, labels, metric in (*((*one, "f1") for one in each), ("b.json", [], "pearson")):
        found = read_columns(tmp_path, replace(OWN, labels=labels, metrics=[metric]), name)
        assert (found.labels, found.malformed[0][-18:]) == ([1], "'label' is missing")
    (tmp_path / "a.json").write_text('{"version": 1, "x": [{"text": "a", "label": "1"}]}')
    assert not read_columns(tmp_path, OWN, "a.json").malformed


def test_json_rows_may_lack_keys_that_the_task_does_not_use(tmp_path):
    rows = [{"text": "a", "label": 1, "note": "x"}, {"text": 5, "label": 0}, {"label": 0, "note": "y"}]
    rows += [{"text": "c", "label": 0, "other": [1]}, *({"text": one, "label": 1} for one in (["a"], {"a": 1}, None))]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    for columns in (["text"], ["{text}"]):
        found = read_columns(tmp_path, replace(OWN, columns=columns), "a.json")
        assert (found.texts[0], found.labels) == (["a", "5", "c"], [1, 0, 0])
        assert found.malformed[0] == f"{tmp_path / 'a.json'}, row 3: 'text' is missing"
        assert len(found.malformed) == 4, "lists, objects and null are no texts"


def test_quoted_fields_are_those_that_were_written(tmp_path):
    (tmp_path / "a.csv").write_text('text, label\n "a, ""b""", "1"\nc, 0\n')
    found = read_columns(tmp_path, OWN, "a.csv")
    assert (found.texts[0], found.labels) == (['a, "b"', "c"], [1, 0])
    (tmp_path / "a.tsv").write_text('text\tlabel\n"a ""b"""\t1\n"c\td"\t0\n')
    found = read_columns(tmp_path, OWN, "a.tsv")
    assert (found.texts[0], found.labels) == (['a "b"', "c\td"], [1, 0])


@pytest.mark.parametrize("where", ["in the folder", "itself"])
def test_the_official_zip_files_are_read_as_they_are(tmp_path, where):
    path = tmp_path / "RTE.zip"
    content = "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tnot_entailment\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("RTE/", "")
        archive.writestr("__MACOSX/RTE/train.tsv", "junk")
        archive.writestr("RTE/train.tsv", content)
    data = tmp_path if where == "in the folder" else path
    found = read_columns(data, examples.task_of("rte"), "train.tsv")
    assert (found.texts[0], found.texts[1], found.labels) == (["A."], ["B."], [1])
    assert table_files.find(data, "RTE", "dev.tsv") is None
    path.write_bytes(b"PK")
    with refused(InputError, path=str(path)):
        read_columns(data, examples.task_of("rte"), "train.tsv")


def test_test_sets_have_no_labels_and_cola_has_a_header_there_alone(tmp_path):
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "test.tsv").write_text("index\tsentence\n0\tI ate.\n1\tHe eat.\n")
    found = read_columns(tmp_path, examples.task_of("cola"), "test.tsv", labelled=False)
    assert (found.texts[0], found.labels) == (["I ate.", "He eat."], [0, 0])


@pytest.mark.shared_data
def test_adversarial_glue_is_a_task_by_a_few_settings(shared_data):
    task = replace(OWN, columns=["sentence"], key="sst2")
    found = read_columns(shared_data / "glue" / "advglue", task, "dev_ann.json")
    assert len(found.labels) > 100
    assert found.texts[0][0].startswith("it 's an uneven treat that bores fun")
    assert found.labels[0] == 1
