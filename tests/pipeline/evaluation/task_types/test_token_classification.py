"""Tags of words: entities as conlleval finds them, sentences in windows."""

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from string import ascii_lowercase

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nervaluate import Evaluator
from pyarrow import parquet as pq

from model.finetuning.features import UNLABELLED
from pipeline.config import TaskConfig
from pipeline.errors import ConfigError, InputError
from pipeline.evaluation.task_types import token_classification
from pipeline.evaluation.task_types.token_classification import (
    Tagging,
    entities,
    entity_scores,
    name_numbers,
    parse,
    split_tags,
)
from pipeline.tokenization.wordpiece import WordPiece
from tests.pipeline.evaluation.byte_level import learn_byte_level
from tests.support.preparing import vocabulary
from tests.support.refusals import refused

TASK = TaskConfig(name="ner", kind="tagging", columns=["0"], label="-1", train="train", dev="dev", metrics=["f1"])
CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory):
    entries = [*ascii_lowercase, *(f"##{letter}" for letter in ascii_lowercase), "eu", "peter"]
    return WordPiece.load(vocabulary(tmp_path_factory.mktemp("vocab"), entries))


def made(folder, wordpiece, text=CONLL, longest=40):
    (folder / "train").write_text(text)
    return Tagging(str(folder), TASK, wordpiece, longest)


def perfect(kind, part):
    """Logits that point at the labels; elsewhere at another tag."""
    return [
        np.eye(kind.outputs, dtype=np.float32)[np.where(labels == UNLABELLED, 0, labels)]
        for labels in part.samples.labels
    ]


COMMENTED = [
    "# id 11aa domain=en\nanna _ _ B-PER\nlives _ _ O\n\n# id 22bb domain=en\noslo _ _ O\n",
    "# id 11aa\tdomain=en\nanna _ _ B-PER\nlives _ _ O\n\n# id 22bb\tdomain=en\noslo _ _ O\n",
    "#\thttps://a.b/c [2009]\nanna\tB-PER\nlives\tO\n\n#\thttps://a.b/d [2009]\noslo\tO\n",
    "# sent_id = 1\n# text = anna lives\nanna\tN\tB-PER\nlives\tV\tO\n\n# text = o\noslo\tN\tO\n",
    "#begin document (a/b); part 000\nanna B-PER\nlives O\n\noslo O\n#end document\n",
    "# O\nanna\tB-PER\nlives\tO\n\n# B-PER\noslo\tO\n",
    "# two O\nanna PER\nlives 0\n\n# newpar\noslo 0\n",
]


def test_columns_are_padded_and_documents_begin_in_any_column():
    text = b"1 -DOCSTART- O\n1 \tanna \tB-PER \t_\n2\tlives\tO\t_\n"
    assert parse("f", text, [1, 2])[0] == [(["anna", "lives"], ["B-PER", "O"])]


@pytest.mark.parametrize("names", ["word\ttag", "Token\tNER", "text label", "Wort\tNE-COARSE-LIT"])
@pytest.mark.parametrize("end", ["\n", "\n\n"])
def test_names_of_columns_are_no_words(names, end):
    for columns in ([0, 1], [0, -1], [0]):
        with refused(InputError, "names the columns", path="f", line=1):
            parse("f", f"{names}{end}anna\tB-PER\nlives\tO\n".replace(" ", "\t").encode(), columns)


def test_a_word_that_is_a_name_stays_where_its_tag_is_a_class():
    assert parse("f", b"word\ttag\nanna\ttag\n", [0, 1])[0] == [(["word", "anna"], ["tag", "tag"])]
    assert parse("f", b"Title\tO\nanna\tB-PER\n", [0, 1])[0] == [(["Title", "anna"], ["O", "B-PER"])]
    assert parse("f", b"word\nanna\n", [0])[0] == [(["word", "anna"], [])]


def test_words_of_a_range_and_empty_nodes_of_conllu_are_read_once():
    words = [("1-2", "du", "_"), ("1", "de", "ADP"), ("2", "le", "DET"), ("2.1", "x", "_"), ("3", "chat", "NOUN")]
    text = "# text = du chat\n" + "".join("\t".join((*row, "_", "_")) + "\n" for row in words)
    assert parse("f", text.encode(), [1, 2]) == ([(["de", "le", "chat"], ["ADP", "DET", "NOUN"])], [])
    timed = b"0.5\tanna\tB-PER\n1\tlives\tO\n1.5\tright\tO\n2\there\tO\n"
    assert parse("f", timed, [1, 2])[0][0][0] == ["anna", "lives", "right", "here"]


def test_a_row_with_more_columns_than_others_is_malformed():
    sentences, malformed = parse("f", b"anna B-PER\nNew York B-LOC\nlives O\n", [0, 1])
    assert sentences == [(["anna", "lives"], ["B-PER", "O"])]
    assert malformed == ["f, line 2: 3 columns"]


@pytest.mark.parametrize("text", COMMENTED)
def test_comments_are_no_words(text):
    sentences, malformed = parse("f", text.encode(), [0, -1])
    assert [words for words, _ in sentences] == [["anna", "lives"], ["oslo"]]
    assert {tag for _, tags in sentences for tag in tags} <= {"B-PER", "O", "PER", "0"}
    assert not malformed
    cut = text.split("\n")  # without the tags
    lines = [line if line[:1] == "#" else re.sub("[ \t][^ \t]*$", "", line) for line in cut]
    sentences, _ = parse("f", "\n".join(lines).encode(), [0])
    assert [words for words, _ in sentences] == [["anna", "lives"], ["oslo"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#\tO\n#win\tB-MISC\nnow\tO\n", ["#", "#win", "now"]),
        ("now O\n# O\n1 O\n", ["now", "#", "1"]),
        ("a NN B-NP O\n# # I-NP O\n#x NN I-NP B-LOC\n", ["a", "#", "#x"]),
        ("# O\n#a B-PER\n", ["#", "#a"]),
        ("a PER\nb -\n# -\n#c PER\n", ["a", "b", "#", "#c"]),
    ],
)
def test_a_hash_with_a_tag_is_a_word(text, words):
    assert [one for one, _ in parse("f", text.encode(), [0, -1])[0]] == [words]


def test_a_hash_is_a_word_of_a_file_without_tags():
    assert parse("f", b"# O\nanna NN\nlives VB\n", [0])[0] == [(["anna", "lives"], [])], "no tag is read here"
    assert parse("f", b"#\n#win\nnow\n", [0])[0] == [(["#", "#win", "now"], [])]


@pytest.mark.parametrize("longest", [8, 12, 40])
def test_words_keep_their_tags_however_a_sentence_is_cut(tmp_path, wordpiece, longest):
    kind = made(tmp_path, wordpiece, longest=longest)
    part = kind.read("train")
    assert part.truth == [["B-ORG", "O", "B-MISC"], ["B-PER", "I-PER"]]
    assert all(len(ids) <= longest for ids in part.samples.ids)
    assert kind.decode(part, perfect(kind, part)) == part.truth
    labelled = sum((labels != UNLABELLED).sum() for labels in part.samples.labels)
    assert labelled == 5  # the first piece of each word, no other


def test_a_word_of_no_piece_is_unknown_not_gone(tmp_path, wordpiece):
    kind = made(tmp_path, wordpiece, "peter B-PER\n\u200b O\n", 20)
    part = kind.read("train")
    assert [wordpiece.vocab[n] for n in part.samples.ids[0]] == ["[CLS]", "peter", "[UNK]", "[SEP]"]
    assert kind.decode(part, perfect(kind, part)) == [["B-PER", "O"]]


@pytest.mark.parametrize("prefix_space", [False, True])
def test_words_have_the_ids_that_they_have_in_the_text(prefix_space):
    words = ["I", "live", "in", "Paris"]
    bpe = learn_byte_level([" ".join(words)] * 9, prefix_space)
    whole = bpe.library.encode(" ".join(words), add_special_tokens=False).ids
    kind = Tagging("", replace(TASK, labels=["O", "B-LOC"]), bpe, 64)
    part = kind.part_of([(words, ["O", "O", "O", "B-LOC"])] * 2, True, [], "")
    assert [ids.tolist() for ids in part.samples.ids] == [[bpe.cls, *whole, bpe.sep]] * 2
    assert kind.decode(part, perfect(kind, part)) == part.truth
    small = Tagging("", kind._task, bpe, 4)  # two words in a window: what follows has its space
    cut = [ids[1:-1].tolist() for ids in small.part_of([(words, [])], False, [], "").samples.ids]
    assert cut == [whole[:2], whole[2:]]


def test_tags_that_a_task_names_are_taken_as_they_are():
    assert name_numbers("", (known := [(["a", "b"], ["BC", "IC"])], []), ["O", "BC", "IC"]) == (known, [])


# Sentence, and what conlleval calls entities.
KNOWN = [
    ("O B-PER I-PER O", {(1, 3, "PER")}),
    ("I-PER I-PER B-PER", {(0, 2, "PER"), (2, 3, "PER")}),  # IOB1
    ("I-LOC I-PER", {(0, 1, "LOC"), (1, 2, "PER")}),
    ("S-LOC B-PER E-PER E-PER", {(0, 1, "LOC"), (1, 3, "PER"), (3, 4, "PER")}),
    ("O O", set()),
    ("B I O B", {(0, 2, ""), (3, 4, "")}),  # one type, without a name
    *((tags, {(0, 2, ""), (2, 3, "")}) for tags in ("I I B O", "B E S O")),
    ("B I-PER", {(0, 1, ""), (1, 2, "PER")}),
    ("PER PER LOC O LOC", {(0, 2, "PER"), (2, 3, "LOC"), (4, 5, "LOC")}),  # types alone
    *((tags, {(0, 1, "x"), (1, 2, "x"), (2, 4, "y")}) for tags in ("S-x S-x B-y E-y", "U-x U-x B-y L-y")),
    ("B-x M-x E-x B-x", {(0, 3, "x"), (3, 4, "x")}),  # BMES
    ("o b-x i-x b-x o", {(1, 3, "x"), (3, 4, "x")}),
    ("B_x I_x B_x O", {(0, 2, "x"), (2, 3, "x")}),
    ("B_x I_x NN", {(0, 1, "B_x"), (1, 2, "I_x"), (2, 3, "NN")}),  # types alone
    *((tags, {(0, 2, "x"), (2, 3, "x")}) for tags in ("x-B x-I x-B O", "x_B x_I x_B O", "x-b x-e x-s o")),
    ("I-B I-I B-B", {(0, 1, "B"), (1, 2, "I"), (2, 3, "B")}),  # prefixes in front
    *((f"B-x I-x {tag} B-x", {(0, 2, "x"), (3, 4, "x")}) for tag in ("0", "_", "-", "OTHER", "out")),  # for O
    ("B M E 0 S", {(0, 3, ""), (4, 5, "")}),
    ("x x OTHER O", {(0, 2, "x"), (2, 3, "OTHER")}),
    ("x x _ y", {(0, 2, "x"), (3, 4, "y")}),
    *((tags, {(0, 2, "x"), (2, 3, "y")}) for tags in ("B:x I:x B:y O", "B/x I/x B/y 0", "B.x I.x B.y o")),
    ("x-A x-B", {(0, 1, "x-A"), (1, 2, "x-B")}),  # types alone
    ("S S E L O", {(0, 2, "S"), (2, 3, "E"), (3, 4, "L")}),
    ("B M M E S B E", {(0, 4, ""), (4, 5, ""), (5, 7, "")}),
    ("NN-TL JJ-TL NN", {(0, 1, "NN-TL"), (1, 2, "JJ-TL"), (2, 3, "NN")}),  # types alone, as of Brown's corpus
]


@pytest.mark.parametrize(("tags", "expected"), KNOWN)
def test_entities_are_those_of_conlleval(tags, expected):
    assert entities(tags.split(), split_tags(tags.split())) == expected


spans = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(["A", "B"])))


@given(spans)
def test_what_is_written_in_any_scheme_is_found(parts):
    place, expected = 0, set()
    iob = []
    iobes = []
    for gap, size, kind in parts:
        iob += ["O"] * gap + [f"B-{kind}"] + [f"I-{kind}"] * (size - 1)
        inner = [f"B-{kind}", *[f"I-{kind}"] * (size - 2), f"E-{kind}"]
        iobes += ["O"] * gap + (inner if size > 1 else [f"S-{kind}"])
        expected.add((place + gap, place + gap + size, kind))
        place += gap + size
    assert entities(iob, split_tags(iob)) == entities(iobes, split_tags(iobes)) == expected


@pytest.mark.parametrize("columns", [[0, 1], [0, -1]])
def test_only_spaces_and_tabs_divide_columns(columns):
    lines = "10\u00a0000 O\r\nMont\u2009Blanc   B-LOC \n\u3000\tO\nNew York\tB-LOC\n \t\neu O"
    sentences, malformed = parse("f", lines.encode(), columns)
    words = ["10\u00a0000", "Mont\u2009Blanc", "\u3000", "New York"]
    assert sentences == [(words, ["O", "B-LOC", "O", "B-LOC"]), (["eu"], ["O"])]
    assert not malformed


@pytest.mark.parametrize("tags", ["B I O B", "PER O LOC"])
def test_right_answers_score_1_without_types_or_prefixes(tags):
    assert set(entity_scores([tags.split()], [tags.split()], tags.split()).values()) == {1.0}


def test_mistakes_are_named(tmp_path, wordpiece):
    part = made(tmp_path, wordpiece, "peter B-PER\nalone\n\neu O\n").read("train")
    assert (part.truth, part.malformed) == ([["B-PER"], ["O"]], [f"{tmp_path / 'train'}, line 2: 1 columns"])
    for columns in ([0, -2], [-1, -1], [0, -3], [0, 5]):
        with refused(InputError, path="f"):
            parse("f", b"peter B-PER\neu O\n# O\n", columns)
    with refused(ConfigError, "indices", key="task.columns"):
        Tagging(str(tmp_path), replace(TASK, columns=["tokens"]), wordpiece, 40)
    (tmp_path / "dev").write_text("peter B-LOC\n")
    with refused(InputError, r"'B-LOC' .*B-PER, O", key="task.labels", path="dev"):
        made(tmp_path, wordpiece, "peter B-PER\neu O\n").read("dev")
    with pytest.raises(InputError, match="no sentences"):
        made(tmp_path, wordpiece, "-DOCSTART- -X- O\n")


TAGS = st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"])
PAIRS = st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=8), min_size=1, max_size=4)


@given(PAIRS)
def test_scores_are_those_of_a_library(sentences):
    truth = [[true for true, _ in pairs] for pairs in sentences]
    given = [[answer for _, answer in pairs] for pairs in sentences]
    strict = Evaluator(truth, given, ["x", "y"], loader="list").evaluate()["overall"]["strict"]
    found = entity_scores(truth, given, ["O", "B-x", "I-x", "B-y", "I-y"])
    assert found["accuracy"] == pytest.approx(
        np.mean([true == answer for pairs in sentences for true, answer in pairs])
    )
    for name in ("precision", "recall", "f1"):
        assert found[name] == pytest.approx(getattr(strict, name))


ROWS = [
    {"id": "0", "tokens": ["EU", "rejects"], "pos_tags": [3, 4], "ner_tags": ["B-ORG", "O"]},
    {"id": "1", "tokens": ["New York"], "pos_tags": [3], "ner_tags": ["O"]},
]
NUMBERS = {"B-ORG": 1, "O": 0}
NUMBERED = [row | {"ner_tags": [NUMBERS[tag] for tag in row["ner_tags"]]} for row in ROWS]
TYPED = [row | {"ner_tags": list(map(str, row["ner_tags"]))} for row in NUMBERED]


def lines_of(rows):
    return "\n".join(map(json.dumps, rows)).encode()


def parquet_of(rows, names=None):
    """A file as the hub has it, with the names of the classes in its metadata."""
    feature = {"feature": {"names": names, "_type": "ClassLabel"}, "_type": "List"}
    about = {"info": {"features": {"ner_tags": feature, "id": {"dtype": "string", "_type": "Value"}}}}
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"huggingface": json.dumps(about)} if names else None)
    pq.write_table(table, sink := pa.BufferOutputStream())
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        (lines_of(ROWS), []),
        (json.dumps(ROWS, indent=1).encode(), []),
        (lines_of(NUMBERED), ["O", "B-ORG"]),
        (lines_of(TYPED), ["O", "B-ORG"]),
        (parquet_of(ROWS), []),
        (parquet_of(NUMBERED, ["O", "B-ORG"]), []),
        (parquet_of(NUMBERED), ["O", "B-ORG"]),
    ],
    ids=["lines", "list", "numbers", "texts", "parquet", "parquet of classes", "parquet of numbers"],
)
@pytest.mark.parametrize("name", ["train", "train.conll", "train.jsonl"])
def test_rows_are_read_by_what_they_are(tmp_path, wordpiece, content, labels, name):
    (tmp_path / name).write_bytes(content)
    kind = Tagging(str(tmp_path), replace(TASK, train=name, labels=labels), wordpiece, 40)
    part = kind.read(name)
    assert part.truth == [["B-ORG", "O"], ["O"]]
    assert (part.extra[1], sorted(kind.tags)) == ([["EU", "rejects"], ["New York"]], ["B-ORG", "O"])
    named = replace(TASK, train=name, labels=labels, columns=["tokens"], label="ner_tags")
    assert Tagging(str(tmp_path), named, wordpiece, 40).read(name).truth == part.truth


def test_what_rows_lack_is_counted_or_named(tmp_path, wordpiece):
    def read(rows, **changes):
        (tmp_path / "train").write_bytes(lines_of(rows))
        return Tagging(str(tmp_path), replace(TASK, **changes), wordpiece, 40).read("train")

    found = read([*ROWS, {"tokens": ["a", "b"], "ner_tags": ["O"]}, {"tokens": "a b", "ner_tags": ["O", "O"]}])
    assert (len(found), [fault.split(":")[0][-5:] for fault in found.malformed]) == (2, ["row 3", "row 4"])
    for rows, match in (
        (NUMBERED, "task.labels="),
        (TYPED, "task.labels="),
        ([ROWS[1] | {"ner_tags": [None]}], "row 1"),
    ):
        with refused(InputError, match):
            read(rows)
    with refused(InputError, r"task\.columns=\[NAME\]", key="task.columns"):
        read([{"text": ["a"], "ner_tags": ["O"]}])
    with refused(InputError, "task.label=NAME", key="task.label"):
        read(ROWS, label="ner")


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("EU BORG\nInc IORG\nsays O\n", "B-ORG"),
        ("EU (ORG)\nsays *\n", "B-"),
        ("TU ORG[1]\nBonn ORG[1]\nsays _\n", "B-"),
        ("EU B-ORG 0.9\nsays O 0.8\n", "task.label="),
        ("EU\tNE=B-ORG|SpaceAfter=No\nsays\t_\n", "NE=B-ORG"),
        ("EU\tSpaceAfter=No\nsays\t_\n", "SpaceAfter=No"),
        ("en:EU B-ORG\nen:says O\n", "sed 's/\\^en:"),
        ('{"text": "EU says", "label": [[0, 2, "ORG"]]}\n', "ner_tags"),
        ("T1\tORG 0 2\tEU\nT2\tPER 9 11\tMe\nR1\tOf Arg1:T1 Arg2:T2\tEU\n", "ner_tags"),
        ("EU rejects\tB-ORG O\nPeter spoke\tB-PER O\n", None),
        ("The year began with rain .\nNo one spoke .\nIt was then that he left the town for good .\n" * 5, None),
        ("<html><body>\n<p>one two</p>\n</body></html>\n", None),
        ("word O\nEU B-ORG\n" * 100, None),
        ('{"data": [{"paragraphs": []}]}', None),
    ],
)
def test_words_and_tags_of_other_forms_are_refused_with_a_cure(tmp_path, wordpiece, text, cure):
    with refused(InputError, cure, path=str(tmp_path / "train")):
        made(tmp_path, wordpiece, text)


NUMBERED_ROWS = [("sentence_id", "words", "labels"), (0, "EU", "B-ORG"), (0, ",", "O"), (1, "x", "O")]
FIRST_OF_SENTENCE = [("Sentence #", "Word", "POS", "Tag"), ("Sentence: 1", "EU", "N", "B-ORG"), ("", ",", ",", "O")]
LISTS = [("Sentence #", "Sentence", "Tag"), ("Sentence: 1", "EU ,", "['B-ORG', 'O']"), ("Sentence: 2", "x", "['O']")]


@pytest.mark.parametrize(
    ("mark", "rows", "changes"),
    [
        (",", [("EU", "B-ORG"), (",", "O"), (), ("x", "O")], {}),
        (";", [("EU", "B-ORG"), (",", "O"), (), ("x", "O")], {}),
        (",", NUMBERED_ROWS, {}),
        ("\t", NUMBERED_ROWS, {}),
        (",", [*FIRST_OF_SENTENCE, ("Sentence: 2", "x", "X", "O")], {}),  # of Kaggle, as the lists
        (",", LISTS, {"columns": ["Sentence"], "label": "Tag"}),
    ],
)
def test_csv_is_refused_with_a_command_that_makes_columns_of_it(tmp_path, wordpiece, mark, rows, changes):
    with (tmp_path / "my train.csv").open("w", newline="") as file:
        csv.writer(file, delimiter=mark).writerows(rows)
    task = replace(TASK, train="my train.csv")
    with refused(InputError, path=str(tmp_path / "my train.csv")) as raised:
        Tagging(str(tmp_path), task, wordpiece, 40)
    command = re.search(r"python -c .*(?=, then name (my train\.\w+))", str(raised.value))
    run = command[0].replace("python", sys.executable, 1)
    subprocess.run(run, shell=True, check=True, cwd=tmp_path)
    made = Tagging(str(tmp_path), replace(TASK, train=command[1], **changes), wordpiece, 40).read(command[1])
    assert (made.truth, made.extra[1]) == ([["B-ORG", "O"], ["O"]], [["EU", ","], ["x"]])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("1\tEU\tB-ORG\n2\tsaid\tO\n\n1\tYes\tO\n", "task.columns"),  # as of GermEval 2014
        ("bc/x\tEU\tB-ORG\nbc/x\tsaid\tO\n\nbc/x\tYes\tO\nbc/x\t.\tO\n", "task.columns"),  # as of CoNLL 2012
        ("1\tthe\tthe\tDET\t_\n2-3\tcan't\t_\t_\t_\n2\tcan\tcan\tAUX\t_\n3\tnot\tnot\tPART\t_\n", "task.columns"),
        ("EU\tB-ORG\t_\nsaid\tO\t_\n", "task.label"),
        ("TU\tB-ORG\tO\nBonn\tI-ORG\tB-LOC\nBonn\tB-LOC\tO\n", "task.label"),
        ("Yes\tO\tbob\n\nEU\tB-ORG\tann\nsaid\tO\tann\n", "task.label"),  # as of Universal NER
        ("TOKEN\tNE-LIT\tMISC\nEU\tB-ORG\t_\n.\tO\tEnd\n\nx\tO\t_\n", "task.label"),  # as of HIPE
        ("".join(f"It w{n} by x{n}\n" for n in range(30)), "task.label"),
        ("B-ORG\tEU\nO\tsaid\n\nO\tYes\n", "task.columns"),
        ("EU\t1\nsaid\t0\n", "task.labels"),
    ],
)
def test_a_column_of_other_things_than_words_or_tags_is_refused(tmp_path, wordpiece, text, key):
    with refused(InputError, f"{key}=", key=key):
        made(tmp_path, wordpiece, text)


# As CoNLL 2003 has its words, tweets, and text that is divided everywhere.
NEWS = "Mr. Clinton 's U.S. visit , the IL-2 re-run , O'Neil said . ( -- Reuters ) ." + " 's" * 40
TWEETS = "@anna loves #oslo , see http://t.co/x-1 ! A - b ( really ) ."
ATOMS = "IL - 2 , U . S . ( melanoma ) ."
RAW_HAN = "他去IBM。3.5％と"
RAW = "Germany's (melanoma), IL-2 and U.S. @bob: wait... #now!"


@pytest.mark.parametrize(
    ("file", "raw", "words"),
    [
        (NEWS, RAW, "Germany 's ( melanoma ) , IL-2 and U.S . @ bob : wait ... # now !"),
        (TWEETS, RAW, "Germany's ( melanoma ) , IL-2 and U.S . @bob : wait ... #now !"),
        (ATOMS, RAW, "Germany's ( melanoma ) , IL - 2 and U . S . @ bob : wait ... # now !"),
        ("他 在 北 京 。 IBM 说", RAW_HAN, "他 去 IBM 。 3.5％ と"),
        ("他 在 北京 。 IBM 说 好的", RAW_HAN, "他去IBM 。 3.5％と"),
    ],
    ids=["news", "tweets", "atoms", "characters", "words"],
)
def test_raw_text_is_divided_as_the_training_file_had_it(file, raw, words):
    marks = token_classification.words_of([file.split()])
    assert [raw[start:end] for start, end in token_classification.words_in(raw, **marks)] == words.split()


@given(st.text(st.sampled_from("ab .,-'(#\u0301"), max_size=20), st.text(st.sampled_from(".,-'(#")))
def test_words_lose_nothing_but_blanks(text, marks):
    spans = token_classification.words_in(text, marks, marks[1:], marks[2:])
    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_a_text_that_is_divided_stays_so():
    text = "Mr. Smith ( 's ) left ."
    assert [text[start:end] for start, end in token_classification.words_in(text, "", "", "")] == text.split()
