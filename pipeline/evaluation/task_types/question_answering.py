"""Extractive question answering: SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016 and 2018).

A long passage is read in windows; each token is scored in the window where it has most context. The
metrics are those of the official script.
"""

import collections
import functools
import json
import re
import string
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from model.finetuning.features import Ids, Samples, frame, framing_tokens
from pipeline.config import TaskConfig
from pipeline.errors import InputError
from pipeline.evaluation import examples, table_files
from pipeline.evaluation.task_types import Dataset, Given, Keep, Logits, Scores, TaskType, chosen
from pipeline.tokenization.wordpiece import WordPiece

QUESTION = 64  # maximum tokens of a question
LONGEST = 30  # maximum tokens of an answer
BEST = 20  # candidate starts and ends
PREDICTIONS = "predictions.json"

LAYOUT = "{data: [{paragraphs: [{context, qas: [{id, question, answers: [{text, answer_start}]}]}]}]}"
Spans = list[tuple[int, int]]  # character offsets of each token

ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
PUNCTUATION = frozenset(string.punctuation)
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, as JSON can hold it


@dataclass(frozen=True)
class Question:
    """A question on a passage, with the position of its first answer."""

    identity: str
    text: str
    context: str
    answers: list[str]  # empty: unanswerable
    start: int  # character offset of the first answer
    article: str = ""  # article of the passage: its title, else its first passage


@dataclass(frozen=True)
class Window:
    """A window of a passage as a sequence."""

    question: int
    begin: int  # position of the passage in the sequence
    spans: Spans  # character offsets of each of its tokens
    central: np.ndarray  # whether each token has its most context here


class Answers(TaskType):
    """The task type of answer spans, including unanswerable questions."""

    head = "answer"
    outputs = 2  # logits of the answer's first and last token

    def __init__(self, data: str, task: TaskConfig, wordpiece: WordPiece, longest: int, stride: int):
        self._data, self._task, self._wordpiece, self.names = data, task, wordpiece, task.labels
        self._longest, self._stride = longest, stride

    def read(self, name: str, labelled: bool = True, rows: int | None = None, keep: Keep | None = None) -> Dataset:
        """See `TaskType`.

        Raises:
            InputError: two questions to answer have one id, by which the answers are written.
        """
        place, content = examples.need(self._data, self._task, name)
        asked = chosen(parse(place, content, self._task.key or "data"), keep, lambda question: question.article, rows)
        for identity, count in collections.Counter(one.identity for one in asked).most_common(1):
            if count > 1 and (keep is not None or name != self._task.train):
                raise InputError(f"{count} questions have the id {identity!r}; give each its own", path=place)
        return self.part_of(asked)

    def part_of(self, questions: list[Question]) -> Dataset:
        """Convert questions to samples."""
        windows, ids, seconds, labels = [], [], [], []
        passage = functools.lru_cache(1)(self._tokens)  # most questions follow another on the same one
        for index, question in enumerate(questions):
            for window, sequence, second in self._windows(index, question, *passage(question.context)):
                windows.append(window)
                ids.append(sequence)
                seconds.append(second)
                labels.append(target(question, window))
        samples = Samples(ids, np.array(seconds), np.array(labels, np.int64))
        return Dataset(samples, [question.answers for question in questions], (questions, windows))

    def _tokens(self, text: str) -> tuple[Ids, Spans]:
        (shown,) = self._wordpiece.library_texts([text])
        encoded = self._wordpiece.library.encode(shown, add_special_tokens=False)
        spans: Spans = encoded.offsets if shown == text else places_in(text, shown, encoded.offsets)
        self._wordpiece.note([text], self._wordpiece.coverage)
        self._wordpiece.coverage.unknown += self._wordpiece.unknown_of(encoded)
        return np.array(encoded.ids, np.int64), spans if text.isascii() else with_marks(text, spans)

    def _windows(self, index: int, question: Question, ids: Ids, spans: Spans) -> Any:
        """Yield [CLS] question [SEP] window [SEP] for each window of the passage."""
        asked = self._tokens(question.text)[0][: min(QUESTION, self._longest // 2)]
        room = self._longest - len(asked) - framing_tokens(self._wordpiece, pair=True)
        step = min(self._stride, max(1, room // 2))  # half a window always fits into one
        starts = step * np.arange(1 + -(-max(0, len(ids) - room) // step))[:, None]  # (windows, 1)
        ends = np.minimum(starts + room, len(ids))
        before, after = np.arange(len(ids)) - starts, ends - 1 - np.arange(len(ids))  # (windows, length)
        least = np.minimum(before, after)
        worth = np.where(least >= 0, least + 0.01 * (ends - starts), -1.0)
        best = worth.argmax(0)  # (length,) the window of each token
        for number, (start, end) in enumerate(np.hstack([starts, ends]).tolist()):
            sequence, second = frame(self._wordpiece, asked, ids[start:end])
            begin = len(sequence) - 1 - (end - start)
            yield Window(index, begin, spans[start:end], best[start:end] == number), sequence, second

    def decode(self, part: Dataset, logits: Logits) -> Given:
        """Return [answer, margin by which no answer is more likely] per question."""
        questions, windows = part.extra
        answers: list[list[Any]] = [["", np.inf] for _ in questions]
        best = np.full(len(questions), -np.inf)
        for window, values in zip(windows, logits, strict=True):
            score, text = best_span(questions[window.question].context, window, values)
            answers[window.question][1] = min(answers[window.question][1], float(values[0].sum()))
            if score > best[window.question]:
                best[window.question] = score
                answers[window.question][0] = text
        return [
            [text, round(float(none - score), 6) if np.isfinite(score) else 1e9]
            for (text, none), score in zip(answers, best, strict=True)
        ]

    def score(self, part: Dataset, answers: Given) -> Scores:
        """Return exact match and F1; with unanswerable questions, at the threshold of best F1.

        The threshold is chosen on this dataset, as Devlin et al. 2019, section 4.3, do on dev.
        """
        every = [span_scores(text, truth) for (text, _), truth in zip(answers, part.truth, strict=True)]
        if all(part.truth):
            exact, f1 = np.mean(every, 0)
            return {"f1": float(f1), "exact": float(exact)}
        return with_threshold(
            np.array(every),
            np.array([margin for _, margin in answers]),
            np.array([not truth for truth in part.truth]),
            np.array([bool(text) for text, _ in answers]),
        )

    def majority_baseline(self, part: Dataset) -> Scores:
        """Score never answering."""
        exact, f1 = np.mean([span_scores("", truth) for truth in part.truth], 0)
        return {"f1": float(f1), "exact": float(exact)}

    def export(self, part: Dataset, answers: Given) -> dict[str, str]:
        """Return the predictions file of the official scripts; an empty string means no answer.

        The script gives it the scores of `score`. With unanswerable questions, also the margins,
        for the script's `--na-prob-file`.
        """
        ids = [question.identity for question in part.extra[0]]
        if all(part.truth):
            return {PREDICTIONS: as_json(ids, [text for text, _ in answers])}
        threshold = self.score(part, answers)["threshold"]
        texts = ["" if margin > threshold else text for text, margin in answers]
        margins = [margin for _, margin in answers]
        return {PREDICTIONS: as_json(ids, texts), "null_odds.json": as_json(ids, margins)}


def as_json(ids: list[str], values: Given) -> str:
    """Return a JSON object of one value per id."""
    return json.dumps(dict(zip(ids, values, strict=True)), ensure_ascii=False) + "\n"


def parse(place: str, content: bytes, key: str = "data") -> list[Question]:
    """Parse the questions of a file in SQuAD's layout, or of rows as `datasets` has them; `key` has the articles.

    Raises:
        InputError: the file has another layout, or an answer is not at its offset.
    """
    cure = f"write SQuAD's layout, {LAYOUT}, or rows of id, question, context and answers in JSON lines or Parquet"
    rows = table_files.objects_of(place, content, key, cure=cure, hook=without_surrogates)
    if rows is None:
        raise InputError(f"is neither JSON nor Parquet; {cure}", path=place)
    questions: list[Question] = []
    for number, row in zip(rows[1], rows[0], strict=True):
        try:
            questions += questions_of(place, row if "paragraphs" in row else as_article(row))
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            what = f"has no {error}" if isinstance(error, KeyError) else "has another kind of value than SQuAD"
            raise InputError(f"article or row {number} {what}; {cure}", path=place) from error
    if not questions:
        raise InputError("has no questions", path=place)
    return questions


def as_article(row: dict[str, Any]) -> dict[str, Any]:
    """Return a question with its passage, whose answers are lists of texts and offsets, in SQuAD's layout."""
    pairs = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
    answers = [{"text": text, "answer_start": start} for text, start in pairs]
    passage = {"context": row["context"], "qas": [{**row, "answers": answers}]}
    return {"title": row.get("title"), "paragraphs": [passage]}


def questions_of(place: str, article: dict[str, Any]) -> Iterator[Question]:
    """Yield the questions of an article in SQuAD's layout, else raise what its values raise, or InputError."""
    title = article.get("title") or article["paragraphs"][0]["context"]
    for paragraph in article["paragraphs"]:
        context = paragraph["context"]
        for item in paragraph["qas"]:
            if (impossible := item.get("is_impossible")) not in (None, False, True):  # as "false"
                raise TypeError(impossible)
            # An empty text is how others than SQuAD write that there is none.
            answers = [] if impossible else [answer for answer in item["answers"] if answer["text"] != ""]
            texts = [answer["text"] for answer in answers]
            start = answers[0]["answer_start"] if answers else 0
            "".join((title, context, item["question"], *texts))  # others than texts are a TypeError
            if texts and not (start >= 0 and context.startswith(texts[0], start)):
                problem = f"question {item['id']}: answer {texts[0]!r} does not start at character {start}"
                raise InputError(problem, path=place)
            yield Question(str(item["id"]), item["question"], context, texts, start, title)


def without_surrogates(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Replace lone surrogates, which can be neither tokenized nor written; offsets stay."""
    return {key: SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value for key, value in fields}


def places_in(text: str, shown: str, spans: Spans) -> Spans:
    """Return spans of `shown`, a text with more spaces, as spans of `text`."""
    places = [0]
    for letter in shown:
        places.append(places[-1] + (letter == text[places[-1]]))
    return [(places[start], places[end]) for start, end in spans]


def with_marks(text: str, spans: Spans) -> Spans:
    """Return spans of tokens with the combining marks after them, which a normalizer drops."""
    whole = []
    for (start, end), (after, _) in pairwise([*spans, (len(text), 0)]):
        while end < after and unicodedata.category(text[end])[0] == "M":
            end += 1
        whole.append((start, end))
    return whole


def target(question: Question, window: Window) -> tuple[int, int]:
    """Return the answer's first and last token in a window; [CLS] if it is not inside."""
    if not question.answers or not window.spans:
        return 0, 0
    text = question.answers[0]  # a blank at an end of it is of no token
    begin, end = question.start + len(text) - len(text.lstrip()), question.start + len(text.rstrip())
    if begin < window.spans[0][0] or end > window.spans[-1][1]:
        return 0, 0
    inside = [n for n, (a, b) in enumerate(window.spans) if a < end and b > begin]
    return (window.begin + inside[0], window.begin + inside[-1]) if inside else (0, 0)


def best_span(context: str, window: Window, logits: np.ndarray) -> tuple[float, str]:
    """Return score and text of the most likely answer in a window, from logits `(length, 2)`."""
    length = len(window.spans)
    if not length:
        return -np.inf, ""
    start, end = logits[window.begin : window.begin + length].T  # (L,), (L,)
    starts = np.argsort(np.where(window.central, -start, np.inf), kind="stable")[:BEST]
    starts = starts[window.central[starts]]
    ends = np.argsort(-end, kind="stable")[:BEST]
    scores = start[starts][:, None] + end[ends]  # (K, K)
    far = ends - starts[:, None]
    scores = np.where((far >= 0) & (far < LONGEST), scores, -np.inf)
    if not np.isfinite(scores).any():
        return -np.inf, ""
    first, last = np.unravel_index(scores.argmax(), scores.shape)
    text = context[window.spans[starts[first]][0] : window.spans[ends[last]][1]]
    return float(scores[first, last]), text.strip()  # a token of byte-level BPE has its space


def normalized(text: str) -> list[str]:
    """Return the words in lower case without punctuation and articles, as the official script."""
    text = "".join(letter for letter in text.lower() if letter not in PUNCTUATION)
    return ARTICLES.sub(" ", text).split()


def span_scores(text: str, truth: list[str]) -> tuple[float, float]:
    """Return exact match and F1 of an answer, the maximum over the true answers.

    Without true answers, the empty answer is right.
    """
    given = normalized(text)
    exact = f1 = 0.0
    for answer in [one for one in truth if normalized(one)] or [""]:
        wanted = normalized(answer)
        exact = max(exact, float(given == wanted))
        same = sum((collections.Counter(given) & collections.Counter(wanted)).values())
        if not given or not wanted:
            f1 = max(f1, float(given == wanted))
        else:
            f1 = max(f1, 2 * same / (len(given) + len(wanted)))
    return exact, f1


def with_threshold(every: np.ndarray, margins: np.ndarray, none: np.ndarray, given: np.ndarray) -> Scores:
    """Return scores at the best threshold, above whose margin answers are withheld.

    `every` `(N, 2)` holds exact match and F1 of the answers if given, `none` `(N,)` marks
    unanswerable questions, and `given` `(N,)` answers that are not empty.
    """
    order = np.argsort(margins, kind="stable")
    # Gain of answering over not answering. As in the official script, any answer to an unanswerable
    # question is wrong, even a mere article.
    gain = np.where(none[:, None], -1.0 * given[:, None], every)[order]
    curve = np.concatenate([np.zeros((1, 2)), np.cumsum(gain, 0)]) + none.sum()
    # A threshold can only separate different margins.
    cuts = np.concatenate([[True], np.diff(margins[order]) > 0, [True]])
    cut = int(np.argmax(np.where(cuts, curve[:, 1], -np.inf)))
    plain = np.where(margins > 0, none, every[:, 1])
    return {
        "f1": float(curve[cut, 1] / len(every)),
        "exact": float(curve[cut, 0] / len(every)),
        "threshold": float(margins[order][cut - 1]) if cut else -1e9,
        "f1_at_0": float(plain.mean()),
    }
