import dataclasses
import functools
import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cli import conf_files
from pipeline.common.schema import without_effect
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.config.downstream import TASK_KINDS
from pipeline.errors import ConfigError, InputError
from pipeline.evaluation import examples
from pipeline.evaluation.task_types import token_classification
from tests.pipeline.evaluation.columns import read_columns
from tests.support.refusals import refused

PAIR = TaskConfig(name="pair", folder="PAIR", columns=["a", "b"], labels=["no", "yes"], metrics=["accuracy"])
SCORE = TaskConfig(name="score", folder="SCORE", columns=["a", "b"], label="score", metrics=["pearson"])
HEADER = "index\ta\tb\tlabel\n"


task_of = examples.task_of


def write(folder, task, content, name="train.tsv"):
    path = folder / task.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(folder, task, content):
    write(folder, task, content)
    return read_columns(folder, task, "train.tsv")


FORMS = {
    "plain": "index\ta\tb\tlabel\n0\tx\ty\tyes\n",
    "byte-order mark": "\ufeffindex\ta\tb\tlabel\n0\tx\ty\tyes\n",
    "CRLF": "index\ta\tb\tlabel\r\n0\tx\ty\tyes\r\n",
    "spaces and no last line end": "index\ta\tb\tlabel\n0\tx \t y\tyes",
    "other order": "label\tb\ta\nyes\ty\tx\n\n",
}


@pytest.mark.parametrize("content", FORMS.values(), ids=FORMS)
def test_a_row_is_the_same_however_the_file_is_written(tmp_path, content):
    found = read(tmp_path, PAIR, content)
    assert (found.texts[0], found.texts[1], found.labels) == (["x"], ["y"], [1])


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC"), ("NFD", "NFD")])
@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_names_and_labels_are_the_same_however_they_are_encoded(tmp_path, name, forms):
    typed, written = (functools.partial(unicodedata.normalize, form) for form in forms)
    columns, labels = [typed("câu"), typed("{chủ đề} là gì")], [typed("khó"), typed("dễ")]
    task = dataclasses.replace(PAIR, columns=columns, label=typed("mã"), labels=labels, train=name)
    rows = [["câu", "chủ đề", "mã"], ["x", "y", "dễ"]]
    if name.endswith("l"):
        content = json.dumps(dict(zip(*rows, strict=True)), ensure_ascii=False)
    else:
        content = "\n".join(("," if name == "a.csv" else "\t").join(row) for row in rows)
    write(tmp_path, task, written(content), name)
    found = read_columns(tmp_path, task, name)
    assert (found.texts[0], found.texts[1], found.labels) == (["x"], [unicodedata.normalize("NFC", "y là gì")], [1])
    tags = token_classification.parse("a", written("nhà\tB-khó").encode(), [0, 1])[0]
    assert tags == [([written("nhà")], ["B-" + unicodedata.normalize("NFC", "khó")])]


def test_malformed_rows_are_left_out_and_named(tmp_path):
    found = read(tmp_path, PAIR, HEADER + "0\tx\ty\tyes\n1\tx\ty\n\n2\tx\ty\tno\tmore\n3\tx\ty\tno\n")
    assert found.labels == [1, 0]
    path = tmp_path / "PAIR" / "train.tsv"
    assert [fault.partition(": ")[0] for fault in found.malformed] == [f"{path}, line {number}" for number in (3, 4, 5)]
    counts = [fault.partition(": ")[2].split()[0] for fault in found.malformed]
    assert counts == ["3", "1", "5"]


CHARACTERS = st.characters(exclude_characters="\t\n\r", codec="utf-8") | st.sampled_from('"\u2028\x85\x0c')
cells = st.text(CHARACTERS).map(str.strip)


@given(st.lists(st.tuples(cells, cells, st.sampled_from(["no", "yes"])), min_size=1))
def test_what_is_written_is_read(tmp_path_factory, rows):
    content = "".join(f"{n}\t{a}\t{b}\t{label}\n" for n, (a, b, label) in enumerate(rows))
    found = read(tmp_path_factory.mktemp("glue"), PAIR, HEADER + content)
    labels = [PAIR.labels[int(label)] for label in found.labels]
    assert list(zip(*found.texts, labels, strict=True)) == rows
    assert not found.malformed


def test_scores_are_numbers(tmp_path):
    head = "a\tb\tscore\n"
    assert read(tmp_path, SCORE, head + "x\ty\t3.800\nx\ty\t-.5E1\n").labels == [3.8, -5]
    for bad in ("good", "nan", "inf", "1_000", "1e3_0", "\uff11\uff12", "0x10", "1,5", "1e999"):
        with refused(InputError, f"'{bad}'", line=3):
            read(tmp_path, SCORE, head + f"x\ty\t1\nx\ty\t{bad}\n")


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (HEADER + "0\tx\ty\tyes\n1\tx\ty\tmaybe\n", 3, "'maybe'"),
        ("index\ta\tlabel\n0\tx\tyes\n", 1, "'b'"),
        (HEADER, None, "rows"),
        (b"", None, "empty"),
        (HEADER.encode() + b"0\tx\xff", None, "byte 19"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(tmp_path, content, line, message):
    with refused(InputError, message, line=line) as error:
        read(tmp_path, PAIR, content)
    assert error.value.path.endswith("train.tsv")


def test_a_missing_file_is_told_with_where_it_belongs(tmp_path):
    with pytest.raises(InputError, match=r"RTE/dev\.tsv"):
        read_columns(tmp_path, task_of("rte"), "dev.tsv")
    with pytest.raises(InputError, match=r"pipeline\.tasks"):
        read_columns(tmp_path, task_of("sample_next"), "dev.tsv")


# As the official files begin; the folder, a row that has its columns, and what must be read.
NEXT = "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t{}\n"
STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
MNLI = "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
MNLI += "sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n0\t1\t1n\tgov" + "\t(" * 4
MNLI += "\tA.\tB.\tneutral\tneutral\n"
OFFICIAL = {
    "cola": ("gj04\t1\t\tI ate.\n", ("I ate.", None, 1)),
    "sst2": ("sentence\tlabel\nfine film \t1\n", ("fine film", None, 1)),
    "mrpc": ("\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t70\t71\tA b\tB a\r\n", ("A b", "B a", 1)),
    "stsb": (f'{STSB}0\tmain\tMSR\t2012\t0001\tnone\tnone\tA "plane\tA plane\t4.750\n', ('A "plane', "A plane", 4.75)),
    "qqp": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tWhy?\tHow?\t0\n", ("Why?", "How?", 0)),
    "mnli": (MNLI, ("A.", "B.", 2)),
    "qnli": ("index\tquestion\tsentence\tlabel\n0\tWho?\tHe.\tentailment\n", ("Who?", "He.", 0)),
    "rte": (NEXT.format("not_entailment"), ("A.", "B.", 1)),
    "sample_order": ("index\tsentence\tlabel\n0\tso is it\t0\n", ("so is it", None, 0)),
    "sample_passage": (NEXT.format(0), ("A.", "B.", 0)),
} | dict.fromkeys(("wnli", "sample_next"), (NEXT.format(1), ("A.", "B.", 1)))
OFFICIAL["mnli_mm"] = OFFICIAL["mnli"]

# The files of the BabyLM Challenge, and the words that its own program reads from a row.
SAW = {"text": "Ann saw her.", "span1_text": "Ann", "span2_text": "her"}
BABYLM = {
    "boolq": ({"question": "is it", "passage": "P."}, ("is it", "P.")),
    "multirc": ({"paragraph": "P.", "question": "Q?", "answer": "A"}, ("Question: Q? Answer: A", "P.")),
    "wsc": (SAW, ('Does "her" refer to "Ann" in this passage?', "Ann saw her.")),
    **{name: ({"sentence1": "A.", "sentence2": "B."}, ("A.", "B.")) for name in ("rte", "mrpc")},
    "qqp": ({"question1": "A?", "question2": "B?"}, ("A?", "B?")),
    "mnli": ({"premise": "A.", "hypothesis": "B."}, ("A.", "B.")),
}


@pytest.mark.parametrize("name", sorted(OFFICIAL))
def test_every_task_reads_its_official_columns(tmp_path, name):
    content, (first, second, label) = OFFICIAL[name]
    task = task_of(name)
    assert (task.name, task.sample) == (name, name.startswith("sample_"))
    found = read(tmp_path, task, content)
    assert (found.texts, found.labels) == ([[text] for text in (first, second) if text is not None], [label])


@pytest.mark.parametrize("name", sorted(BABYLM))
def test_every_babylm_task_reads_what_the_challenge_reads(tmp_path, name):
    row, expected = BABYLM[name]
    task = task_of(f"babylm_{name}")
    (tmp_path / task.folder).mkdir()
    (tmp_path / task.folder / task.train).write_text(json.dumps({**row, "label": 1}) + "\n")
    found = read_columns(tmp_path, task, task.train)
    assert (found.texts, found.labels) == ([[text] for text in expected], [1])


def test_an_unknown_column_within_a_sentence_is_named(tmp_path):
    task = dataclasses.replace(task_of("rte"), columns=["{sentence1} {sentence9}", "sentence2"])
    with pytest.raises(InputError, match="sentence9"):
        read(tmp_path, task, OFFICIAL["rte"][0])


@pytest.mark.parametrize(
    ("labels", "cure"),
    [
        (["1.0", "0.0"], "set task.labels=[0.0,1.0]"),
        (["x_ô"], "set task.labels"),
        (["[a]", "null", "schön"], """set 'task.labels=["[a]", "null", "schön"]'"""),  # as Hydra's grammar reads them
        (["yes", "maybe"], "set task.labels=[no,yes,maybe]"),  # of a dev set without `no`
        (["-", "yes", "no"], "leave out rows labelled -"),  # as of SNLI
        ([["yes"]], "for several labels a text set task.multilabel=true"),
    ],
)
def test_labels_that_a_task_does_not_have_are_those_to_type(labels, cure):
    content = "\n".join(json.dumps({"a": "x", "b": "y", "label": label}) for label in labels)
    with refused(InputError, f"{re.escape(cure)}$", key="task.labels"):
        examples.parse_examples("a.jsonl", content.encode(), PAIR)


def test_rows_that_prodigy_rejects_are_left_out_and_counted(tmp_path):
    rows = [{"text": name, "label": 1, "answer": name} for name in ("accept", "reject", "ignore")]
    task = dataclasses.replace(PAIR, columns=["text"], labels=["0", "1"])
    write(tmp_path, task, "\n".join(map(json.dumps, rows)), "a.jsonl")
    found, malformed = examples.read_examples(tmp_path, task, "a.jsonl")
    assert ([texts for texts, _ in found], len(malformed)) == ([("accept",)], 2)


def test_no_task_is_left_out_here():
    tasks = map(task_of, conf_files.choices("task"))
    classified = [task.name for task in tasks if task.kind == "classification" and task.train]
    assert classified == sorted([*OFFICIAL, *(f"babylm_{name}" for name in BABYLM), "own"])


@pytest.mark.parametrize(
    ("change", "key", "word"),
    [
        *(({"columns": each}, "columns", word) for each, word in (([], r"\[\]"), (["label"], "answer"))),
        ({"columns": ["Of {label}"]}, "columns", "answer"),
        ({"header": False}, "columns", "header"),
        *(({"labels": each}, "labels", each[0]) for each in (["one"], ["caf\u00e9", "cafe\u0301"])),
        *(({"metrics": each}, "metrics", word) for each, word in (([], r"\[\]"), (["pearson"], "pearson"))),
        *(({"metrics": ["f1"], **more}, "metrics", "f1") for more in ({"labels": [*"abc"]}, {"multilabel": True})),
        ({"labels": []}, "metrics", "accuracy"),
        ({"labels": [], "metrics": ["pearson"], "multilabel": True}, "multilabel", "task.labels"),
        ({"kind": "tagging", "metrics": ["f1"], "multilabel": True}, "multilabel", "classification"),
        ({"kind": "choice", "choices": ["b"]}, "choices", "b"),
        ({"dev": []}, "dev", r"\[\]"),
    ],
)
def test_a_task_that_cannot_work_is_refused(change, key, word):
    good = {"name": "x", "folder": "X", "columns": ["a"], "labels": ["0", "1"], "metrics": ["accuracy"]}
    with refused(ConfigError, word, key=f"task.{key}"):
        TaskConfig(**good | change)


def test_keys_of_another_kind_of_task_are_said_to_have_no_effect():
    tasks = {name: task_of(name) for name in conf_files.choices("task")}
    assert not [line for task in tasks.values() for line in without_effect(task)]
    config = functools.partial(EvaluateConfig, data="x", pretrained="x", out="x", stride=9)
    pairs, held_out = dataclasses.replace(tasks["blimp"], label="x"), dataclasses.replace(PAIR, dev="x", dev_share=0.1)
    for task, idle in ((pairs, ["task.label", "epochs", "stride"]), (held_out, ["task.dev", "stride"])):
        assert [line.partition("=")[0] for line in without_effect(config(task=task, epochs=7))] == idle


def test_the_order_of_metrics_has_no_meaning(monkeypatch):
    kind = TASK_KINDS["classification"]
    for known in (reversed(kind.metrics), ("accuracy", "matthews", "new", "f1", "pearson")):
        monkeypatch.setitem(TASK_KINDS, "classification", kind._replace(metrics=tuple(known)))
        TaskConfig(name="x", columns=["a"], labels=["0", "1"], metrics=["f1", "accuracy", "matthews"])
        TaskConfig(name="x", columns=["a"], metrics=["pearson"])


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
def test_a_text_may_have_several_labels(tmp_path, name):
    task = TaskConfig(name="x", columns=["a"], labels=["b", "c", "d, e"], metrics=["micro_f1"], multilabel=True)
    values = [["b", "c"], [], ["d, e"], ["c", None, float("nan")]]
    texts = ["b; c", "", "d, e", "c"]
    rows = [json.dumps({"a": "x", "label": one}) for one in values]
    write(tmp_path, task, "\n".join(rows if name == "a.jsonl" else ["a\tlabel", *(f"x\t{one}" for one in texts)]), name)
    assert read_columns(tmp_path, task, name).labels == [[0, 1], [], [2], [1]]
    write(tmp_path, task, "\n".join([*rows, '{"a": "y", "label": null}', '{"a": "y"}']), "c.jsonl")
    unknown = read_columns(tmp_path, task, "c.jsonl")  # which are not none
    assert (len(unknown.labels), len(unknown.malformed)) == (4, 2)
    write(tmp_path, task, "a\tlabel\nx\tb,z\n", name="b.tsv")
    with refused(InputError, "'z'", key="task.labels", line=2):
        read_columns(tmp_path, task, "b.tsv")


ROWS = ["[1, 0, 1]|[0, 0, 0]", "[1. 0. 1.]|[0. 0. 0.]", "['b', 'd']|[]", "['b' 'd']|['']", "1;0;1|0;0;0"]


@pytest.mark.parametrize("rows", ROWS)
def test_lists_of_labels_are_read_as_python_and_numpy_write_them_and_as_vectors(rows):
    task = TaskConfig(name="x", columns=["a"], labels=["b", "c", "d"], metrics=["micro_f1"], multilabel=True)
    content = "\n".join(["a\tlabel", *(f"x\t{row}" for row in rows.split("|"))]).encode()
    assert [label for _, label in examples.parse_examples("f.tsv", content, task)[0]] == [[0, 2], []]
    with refused(InputError, key="task.labels", line=2):
        names = dataclasses.replace(task, labels=["0", "1"])
        examples.parse_examples("f.tsv", b"a\tlabel\nx\t[1, 0]\n", names)


def test_the_files_of_a_pattern_are_development_sets(tmp_path):
    for name in ("dev-a.tsv", "dev-b.tsv", "dev[1].tsv"):
        write(tmp_path, PAIR, HEADER, name)
    for dev, found in (
        ("dev-*.tsv", ["dev-a.tsv", "dev-b.tsv"]),
        (["dev-b.tsv", "dev-*"], ["dev-b.tsv", "dev-a.tsv"]),
        ("dev[1].tsv", ["dev[1].tsv"]),
        ("none*", ["none*"]),
    ):
        assert examples.dev_files(tmp_path, dataclasses.replace(PAIR, dev=dev)) == found


@pytest.mark.parametrize(
    ("content", "cure"),
    [
        ("John B-PER\nruns O\n\nMary B-PER\n\n", "+task=ner"),
        ("1\tJohn\tNOUN\n2\truns\tVERB\n\n1\tMary\tNOUN\n\n", "+task=ner"),
        ('{"tokens": ["John"], "ner_tags": [1]}\n', "+task=ner"),
        ('{"question": "Who?", "context": "He.", "answers": {}}\n', "+task=squad"),
        ("header\nJohn runs\nMary sits\n", None),
    ],
)
def test_a_file_of_another_type_of_task_is_named(tmp_path, content, cure):
    with refused(InputError) as caught:
        read(tmp_path, dataclasses.replace(examples.task_of("own"), header=True), content)
    assert cure in str(caught.value) if cure else "task=" not in str(caught.value)


SEVERAL = dataclasses.replace(
    examples.task_of("own"), multilabel=True, labels=["rude", "odd"], metrics=["micro_f1"], train="train.csv"
)


@pytest.mark.parametrize(
    "content",
    ["text,odd,rude\na,1,0\nb,1,1\nc,0,0\n", '{"text":"a","odd":true,"rude":false}\n{"text":"b","odd":1,"rude":1}\n'
     '{"text":"c","odd":0,"rude":0.0}\n'],
)  # fmt: skip
def test_columns_of_0_and_1_are_several_labels(content):
    place = "a.jsonl" if content[0] == "{" else "a.csv"
    found, _ = examples.parse_examples(place, content.encode(), SEVERAL)
    assert [label for _, label in found] == [[1], [0, 1], []]


@pytest.mark.parametrize(
    ("task", "content"),
    [
        (examples.task_of("own"), "text\todd\trude\na\t1\t0\n"),
        (SEVERAL, "text,odd,other\na,1,0\n"),
        (SEVERAL, "text,odd,rude\na,1,0\nb,2,1\n"),
    ],
)
def test_columns_of_0_and_1_are_never_guessed_to_be_the_labels(task, content):
    with refused(InputError, line=1):
        examples.parse_examples("a.tsv" if "\t" in content else "a.csv", content.encode(), task)
