"""Answers in passages: windows, spans, and the official scores."""

import json
import unicodedata
from string import ascii_lowercase

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet as pq
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from model.finetuning.features import Samples
from pipeline.config import TaskConfig
from pipeline.errors import InputError
from pipeline.evaluation.task_types import Dataset, question_answering
from pipeline.evaluation.task_types.question_answering import Answers
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece
from tests.pipeline.evaluation.byte_level import learn_byte_level
from tests.support.preparing import vocabulary
from tests.support.refusals import refused

TASK = TaskConfig(name="squad", kind="answers", train="train.json", dev="dev.json", metrics=["f1", "exact"])
CONTEXT = "Köln lies on the Rhine; its Cathedral was begun in 1248, and finished in 1880."


def squad(*items):
    """A file of questions on one passage; None: no answer."""
    qas = []
    for number, (question, answer) in enumerate(items):
        found = [] if answer is None else [{"text": answer, "answer_start": CONTEXT.index(answer)}]
        item = {"id": str(number), "question": question, "answers": found}
        qas.append(item | {"is_impossible": answer is None})
    return {"version": "v2.0", "data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]}


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory):
    letters = sorted(set(CONTEXT.lower()) | set("abcdefghijklmnopqrstuvwxyz?"))
    entries = [letter for letter in letters if not letter.isspace()]
    entries += [f"##{letter}" for letter in entries]
    words = ["koln", "lies", "on", "the", "rhine", "cathedral", "was", "begun", "1248", "1880"]
    return WordPiece.load(vocabulary(tmp_path_factory.mktemp("vocab"), [*entries, *words]))


def kind(folder, wordpiece, content, longest, stride):
    (folder / "train.json").write_text(json.dumps(content))
    return Answers(str(folder), TASK, wordpiece, longest, stride)


def perfect(part):
    """Logits that point at the labels."""
    found = []
    for ids, label in zip(part.samples.ids, part.samples.labels, strict=True):
        logits = np.zeros((len(ids), 2), np.float32)
        logits[label[0], 0] = logits[label[1], 1] = 5 if label[1] else 1
        found.append(logits)
    return found


@pytest.mark.parametrize(("longest", "stride"), [(120, 64), (40, 12), (24, 5)])
def test_labels_point_at_the_answer_however_the_passage_is_cut(tmp_path, wordpiece, longest, stride):
    content = squad(
        ("when begun?", "1248"), ("where?", "Rhine"), ("what?", "Cathedral"), ("who?", None), ("end?", "1880")
    )
    made = kind(tmp_path, wordpiece, content, longest, stride)
    part = made.read("train.json")
    assert all(len(ids) <= longest for ids in part.samples.ids)
    found = made.decode(part, perfect(part))
    assert [text for text, _ in found][:3] == ["1248", "Rhine", "Cathedral"]
    assert found[4][0] == "1880"
    assert found[3][1] > max(margin for n, (_, margin) in enumerate(found) if n != 3)
    scores = made.score(part, found)
    assert scores["f1"] == scores["exact"] == 1


@given(st.integers(1, 100), st.integers(12, 200), st.integers(1, 64))
def test_windows_have_the_question_and_point_at_answers_that_they_contain(wordpiece, asked, longest, stride):
    """Of a question as many tokens as BERT's 64, and at most half of a sequence."""
    made = Answers("", TASK, wordpiece, longest, stride)
    answers = ["1248", "the Rhine", "1880", "Köln lies"]
    start = [CONTEXT.index(answer) for answer in answers]
    questions = [
        question_answering.Question("", "? " * asked, CONTEXT, [answer], place)
        for answer, place in zip(answers, start, strict=True)
    ]
    part = made.part_of(questions)
    for window, ids, label in zip(part.extra[1], part.samples.ids, part.samples.labels, strict=True):
        assert (len(label), window.begin) == (made.outputs, 2 + min(asked, 64, longest // 2))
        assert len(ids) == window.begin + len(window.spans) + 1 <= longest
        begin, answer = start[window.question], answers[window.question]
        if begin < window.spans[0][0] or begin + len(answer) > window.spans[-1][1]:
            assert label.tolist() == [0, 0]
        else:
            first, last = (window.spans[place - window.begin] for place in label)
            assert CONTEXT[first[0] : last[1]] == answer


def test_blanks_around_an_answer_are_not_looked_for(wordpiece):
    part = Answers("", TASK, wordpiece, 40, 8).part_of([question_answering.Question("", "?", " 1248 ", [" 1248 "], 0)])
    assert part.samples.labels.tolist() == [[3, 3]]


def test_half_a_character_stands_for_one(tmp_path, wordpiece):
    """As JSON can hold it, which can be neither tokenized nor written."""
    content = squad(("when \ud83d?", "1880"))
    paragraph = content["data"][0]["paragraphs"][0]
    paragraph["context"] = CONTEXT.replace("Rhine", "Rh\ud83dne")
    made = kind(tmp_path, wordpiece, content, 120, 64)
    part = made.read("train.json")
    found = made.decode(part, perfect(part))
    assert [text for text, _ in found] == ["1880"]
    made.export(part, found)["predictions.json"].encode()


def test_every_token_is_judged_in_exactly_one_window(tmp_path, wordpiece):
    part = kind(tmp_path, wordpiece, squad(("?", "1248")), 24, 5).read("train.json")
    seen = [
        span for window in part.extra[1] for span, central in zip(window.spans, window.central, strict=True) if central
    ]
    whole = kind(tmp_path, wordpiece, squad(("?", "1248")), 200, 5).read("train.json")
    assert sorted(seen) == list(whole.extra[1][0].spans)


# What the official evaluate-v1.1.py and evaluate-v2.0.py give.
OFFICIAL = [
    ("the Denver Broncos", ["Denver Broncos", "The Broncos!"], (1.0, 1.0)),
    ("Broncos", ["Denver Broncos"], (0.0, 2 / 3)),
    ("in the year 1248", ["1248", "year 1248"], (0.0, 0.8)),
    ("a cat", ["dog"], (0.0, 0.0)),
    ("", [], (1.0, 1.0)),
    ("something", [], (0.0, 0.0)),
    ("", ["1248"], (0.0, 0.0)),
    ("1,248", ["1248"], (1.0, 1.0)),
]


@pytest.mark.parametrize(("text", "truth", "scores"), OFFICIAL)
def test_scores_are_those_of_the_official_script(text, truth, scores):
    assert question_answering.span_scores(text, truth) == pytest.approx(scores)


# Truths, answer, how much likelier none is; and what evaluate-v2.0.py says of all of them together,
# with --na-prob-thresh 0 (f1_at_0) and as best_f1.
QUESTIONS = [
    (["Denver Broncos", "The Denver Broncos!"], "denver broncos.", -3.0),
    (["in the late 1990s", "1990s"], "late in 1990s", -0.5),
    ([], "Paris", -1.0),
    (["3,014"], "3014 men", 0.5),
    ([], "the", 2.0),
    (["a", "x-ray tube"], "an X ray tube", 4.0),
    (["the"], "one", -2.0),
]


def test_the_score_of_a_set_is_that_of_the_official_script(tmp_path, wordpiece):
    made = kind(tmp_path, wordpiece, squad(("?", "1248")), 64, 32)
    empty = made.read("train.json").samples
    part = Dataset(empty, [truth for truth, _, _ in QUESTIONS])
    found = made.score(part, [[text, margin] for _, text, margin in QUESTIONS])
    assert 100 * found["f1_at_0"] == pytest.approx(42.8571428571)
    assert 100 * found["f1"] == pytest.approx(52.380952381)


GIVEN, TRUE = st.sampled_from(["", "fox", "red fox", "the"]), st.sampled_from(["fox", "red", None])


@given(st.lists(st.tuples(GIVEN, TRUE, st.floats(-5, 5)), min_size=1))
def test_the_predictions_file_has_the_reported_score(rows):
    made = object.__new__(Answers)  # neither method reads a file
    truth = [[] if right is None else [right] for _, right, _ in rows]
    asked = [question_answering.Question(str(n), "?", "", [], 0) for n in range(len(rows))]
    part = Dataset(Samples([], np.zeros(0), None), truth, (asked, []))
    answers = [[text, margin] for text, _, margin in rows]
    written = json.loads(made.export(part, answers)["predictions.json"])
    # As evaluate-v2.0.py without --na-prob-file: every text counts, and none is no answer.
    every = [
        (float(not text), float(not text)) if not right else question_answering.span_scores(text, right)
        for text, right in zip(written.values(), truth, strict=True)
    ]
    found = made.score(part, answers)
    assert np.mean(every, 0).tolist() == pytest.approx([found["exact"], found["f1"]])


MARKED = {"a café was here": "café", "here was a café": "café", "a naïveté b": "naïveté", "he said yẹ̀": "yẹ̀"}
MARKED |= {"Tiếng Việt ở đó": "Tiếng Việt", "it was ❤️": "❤️"}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(("context", "answer"), MARKED.items())
def test_an_answer_has_the_marks_of_its_last_letter(tmp_path, form, context, answer):
    context, answer = (unicodedata.normalize(form, text) for text in (context, answer))
    letters = [*ascii_lowercase, *"đ❤"]
    vocabulary(tmp_path, [*letters, *(f"##{letter}" for letter in letters)])
    item = {"id": "1", "question": "?", "answers": [{"text": answer, "answer_start": context.index(answer)}]}
    content = {"data": [{"paragraphs": [{"context": context, "qas": [item]}]}]}
    part = (made := kind(tmp_path, WordPiece.load(tmp_path), content, 40, 9)).read("train.json")
    assert (part.samples.labels > 0).all()
    (found,) = made.decode(part, perfect(part))
    assert found[0] == answer
    assert f'"{answer}"' in made.export(part, [found])["predictions.json"], "in its own letters"


def test_equal_ids_of_questions_are_refused_where_answers_are_written(tmp_path, wordpiece):
    content = squad(("when?", "1248"), ("where?", "Rhine"))
    content["data"][0]["paragraphs"][0]["qas"][1]["id"] = 0
    made = kind(tmp_path, wordpiece, content, 64, 32)
    assert len(made.read("train.json")) == 2
    (tmp_path / "dev.json").write_text(json.dumps(content))
    for name, keep in (("dev.json", None), ("train.json", bool)):
        with refused(InputError, path=str(tmp_path / name)):
            made.read(name, keep=keep)


def test_answers_do_not_begin_with_the_space_of_their_first_token(tmp_path):
    bpe = learn_byte_level([CONTEXT] * 9)
    answers = ["Köln", "Cathedral", "finished in 1880"]
    made = kind(tmp_path, bpe, squad(*(("when", answer) for answer in answers)), 64, 32)
    part = made.read("train.json")
    assert [text for text, _ in made.decode(part, perfect(part))] == answers


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1), st.integers(-5, 5)), min_size=1))
def test_the_threshold_is_the_best_of_all(rows):
    none = np.array([row[0] for row in rows])
    f1 = np.where(none, 0.0, [row[1] for row in rows])
    margins = np.array([float(row[2]) for row in rows])
    found = question_answering.with_threshold(np.stack([f1, f1], 1), margins, none, margins < 9)
    tried = [np.where(margins > cut, none, f1).mean() for cut in range(-6, 7)]
    assert found["f1"] == pytest.approx(max(tried))
    assert found["f1_at_0"] == pytest.approx(np.where(margins > 0, none, f1).mean())
    at = np.where(margins > found["threshold"], none, f1).mean()
    assert at == pytest.approx(found["f1"])


RIGHT = {"text": "1248", "answer_start": CONTEXT.index("1248")}
WRONG = [({"question": None}, "SQuAD's layout"), ({"answers": [RIGHT, {"text": 5}]}, "SQuAD's layout")]
STARTS = (3, CONTEXT.index("1248") - len(CONTEXT))  # from the end, as a slice would have it
WRONG += [({"answers": [RIGHT | {"answer_start": start}]}, r"question 0: .*'1248'") for start in STARTS]
WRONG += [({"is_impossible": "false"}, "SQuAD's layout")]
OTHERS = [("{", "not valid JSON"), ("[]", "no objects"), ('{"data": []}', "no objects")]


@pytest.mark.parametrize(("change", "message"), [*OTHERS, *WRONG])
def test_other_files_and_what_is_no_text_are_refused(tmp_path, wordpiece, change, message):
    content = squad(("?", "1248"))
    content["data"][0]["paragraphs"][0]["qas"][0] |= change if isinstance(change, dict) else {}
    (tmp_path / "train.json").write_text(change if isinstance(change, str) else json.dumps(content))
    with refused(InputError, message, path=str(tmp_path / "train.json")):
        Answers(str(tmp_path), TASK, wordpiece, 64, 32).read("train.json")


@pytest.mark.shared_data
@pytest.mark.parametrize("language", ["en", "zh"])
def test_real_questions_can_be_answered_from_their_labels(shared_data, language):
    name = {"en": "uncased", "zh": "chinese"}[language]
    wordpiece = WordPiece.load(shared_data / "vocab" / f"bert-base-{name}-vocab.txt")
    made = Answers(str(shared_data / "squad"), TASK, wordpiece, 384, 128)
    part = made.read(f"xquad.{language}.json", rows=300)
    assert len(part) == 300
    scores = made.score(part, made.decode(part, perfect(part)))
    assert scores["exact"] > 0.97  # some answers begin or end within a token, or are long


@pytest.mark.parametrize("model", ["unigram", "wordpiece"])
def test_special_tokens_that_are_typed_are_text(tmp_path, wordpiece, model):
    text = "lies [SEP] on [MASK] the R\u0308hine[SEP]"
    if model == "unigram":
        library = Tokenizer(models.Unigram())
        library.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=list(SPECIAL), unk_token="[UNK]")
        library.train_from_iterator([text] * 9, trainer)
        wordpiece = WordPiece(library.to_str())
    ids, spans = Answers("", TASK, wordpiece, 40, 8)._tokens(text)
    assert not {wordpiece.sep, wordpiece.mask} & {*ids.tolist()}
    assert ids.tolist() == wordpiece.encode([text])[0].tolist()
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    seen = {place for start, end in spans for place in range(start, end)}
    assert seen >= {place for place, letter in enumerate(text) if letter != " "}
    assert [text[start:end].strip() for start, end in spans][-1] == "]"


def test_rows_as_the_hub_has_them_are_read(tmp_path, wordpiece):
    made = kind(tmp_path, wordpiece, squad(("when?", "1248"), ("who?", None)), 120, 64)
    answer = {"text": ["1248"], "answer_start": [CONTEXT.index("1248")]}
    rows = [{"id": "0", "context": CONTEXT, "question": "when?", "answers": answer}]
    rows.append({"id": "1", "context": CONTEXT, "question": "who?", "answers": {"text": [], "answer_start": []}})
    empty = [rows[0], rows[1] | {"answers": {"text": [""], "answer_start": [-1]}}]  # as Haystack writes none
    (tmp_path / "rows").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "empty").write_text("\n".join(map(json.dumps, empty)))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "table")
    first, *others = (made.read(name) for name in ("train.json", "rows", "empty", "table"))
    for other in others:
        assert other.truth == first.truth == [["1248"], []]
        assert [ids.tolist() for ids in other.samples.ids] == [ids.tolist() for ids in first.samples.ids]
        assert other.samples.labels.tolist() == first.samples.labels.tolist()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ('{"data": [{"title": "a", "paragraphs": [{"qas": []}]}]}', "article or row 1 has no 'context'"),
        (
            '{"id": "1", "question": "q", "context": "c", "answers": {"text": ["c", "c"], "answer_start": [0]}}\n',
            "another kind of value",
        ),
        ('{"data": [{"paragraphs": [{"context": "c", "qas": [{"id": 1, "question": "q"}]}]}]}', "has no 'answers'"),
        ("question,answer\nwho,me\n", "neither JSON nor Parquet"),
        ('{"version": 1,\n"x": 2}', "has no key 'data'"),
    ],
)
def test_what_is_not_of_the_layout_is_named_with_the_form(tmp_path, content, what):
    with refused(InputError, what) as raised:
        question_answering.parse("f", content.encode())
    assert "Error" not in str(raised.value)
