"""`python -m pipeline.predict pretrained=FOLDER`: one line of JSON per row of a file.

The folder decides what the model predicts. A pre-trained model fills each [MASK], and classifies
two texts separated by a tab as next or not. A fine-tuned one predicts the class or the score of a
text (or of two), the tags of words, the answer to a question (question, tab, passage), or the best
of several endings (sentence, tab, ending, tab, ending ...). Of a table, `columns` are these texts.

Transformers' pipelines know masks, classes and tags, but no pairs, questions or choices, and they
read `[SEP]` typed in a text as the token, which is only text here.
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from model.finetuning.features import Ids, TruncationConfig, frame, pieces, tokenize
from pipeline.cli import entry_point
from pipeline.config import PredictConfig, TaskConfig
from pipeline.console import output, terminal
from pipeline.errors import InputError
from pipeline.evaluation.input_rows import Row, longest_of, rows_of
from pipeline.evaluation.task_types import round_score
from pipeline.evaluation.task_types.question_answering import Answers, Question
from pipeline.evaluation.task_types.token_classification import Tagging, words_in
from pipeline.tokenization.coverage import Coverage
from pipeline.tokenization.wordpiece import WordPiece

if TYPE_CHECKING:
    from model.finetuning.quantized import QuantizedModel
    from model.finetuning.saved_model import SavedModel

Answer = dict[str, Any]
Rows = list[Row]
Replies = list[Answer]
BLOCK = 1024  # lines per batch
MASK = "[MASK]"


def predict(config: PredictConfig) -> None:
    """Print the predictions, batch by batch.

    Raises:
        InputError: raised by `rows_of`, or all lines are empty.
    """
    answer, coverage = answerer(config)
    rows = (row for row in rows_of(config) if row.columns or row.text.strip())
    answered = False
    while block := list(itertools.islice(rows, BLOCK)):
        answered = True
        show(block, answer(block))
        if output.is_gone():  # as `| head` closes it
            return
    if not answered:
        raise InputError("is empty; write one input per line", "input", path=config.input or "standard input")
    terminal.say(f"predict: {coverage.line}", sys.stderr)


def show(block: Rows, answers: Replies) -> None:
    """Print one line of JSON per prediction, with the row's number and what else is known of it."""
    for row, one in zip(block, answers, strict=True):
        print(json.dumps({"row": row.number, **row.about, **one}, ensure_ascii=False))
    sys.stdout.flush()


def answerer(config: PredictConfig) -> tuple[Callable[[Rows], Replies], Coverage]:
    """Return the function that predicts for lines with the model of the folder, and its counts.

    Raises:
        ConfigError: raised by `longest_of`, or the folder has no graph that is asked for.
        InputError: the folder has no model.
    """
    import torch

    from model.finetuning import saved_model
    from model.finetuning.quantized import QuantizedModel
    from model.huggingface import bert_format

    torch.set_flush_denormal(True)
    folder = Path(config.pretrained)
    bert_format.read_config(folder)  # its error suggests other folders
    wordpiece = WordPiece.load(folder)
    int8 = QuantizedModel(folder) if config.quantize else None
    if not saved_model.is_tuned(folder):
        pretrained = PretrainedModel(config, wordpiece, int8)
        return lambda block: list(map(pretrained.answer, block)), wordpiece.coverage
    if config.top != PredictConfig.top:
        terminal.say(f"warning: top={config.top} has no effect with a fine-tuned model", sys.stderr)
    size, saved = saved_model.load(folder)
    tuned = TunedModel(saved, wordpiece, longest_of(config, size.positions), int8)
    if saved.model.config.kind == "tag":
        how = saved.reading
        kept = f"words begin with {how.starts!r}, end with {how.ends!r}, are divided by {how.divides!r}"
        kept += ", and are single characters in scripts without spaces" if how.characters else ""
        terminal.say(f"predict: punctuation apart as in the training file ({kept})", sys.stderr)
    kinds = {"class": tuned.classes, "tag": tuned.tags, "answer": tuned.passages, "choice": tuned.endings}
    return kinds[saved.model.config.kind], wordpiece.coverage


class PretrainedModel:
    """A pre-trained model, which fills masks and classifies pairs."""

    def __init__(self, config: PredictConfig, wordpiece: WordPiece, int8: "QuantizedModel | None"):
        from model.encoders.architectures import model_with
        from model.huggingface import bert_format

        self.folder = config.pretrained
        self.initialised = set[str]()  # the graph has no outputs of such parts
        self.model: Any = int8
        if int8:
            self.size = bert_format.read_sizes(config.pretrained)
        else:
            self.size, state, notes, _ = bert_format.load(config.pretrained)
            self.initialised |= set(bert_format.initialised_parts(notes))
            self.model = model_with(self.size, state).float()
        self.top, self.wordpiece = config.top, wordpiece
        self.longest = longest_of(config, self.size.positions)

    def answer(self, row: Row) -> Answer:
        """Predict words for masks, or the probability that the second text follows the first.

        Raises:
            InputError: the line has neither a mask nor a tab, or the model lacks the head for it.
        """
        from model.huggingface import mask_filling

        where, line, masked = row.where, row.text, MASK in row.text
        first, *others = texts_of(row, 2)
        second = others[0] if others else None
        if not masked and second is None:
            own = self.wordpiece.vocab[self.wordpiece.mask]
            meant = f"; write {MASK} for {own}" if own in line else ""
            raise InputError(
                f"has neither {MASK} to fill nor a tab between two texts{meant}; to classify, use a fine-tuned model",
                path=where,
            )
        if not masked and not self.model.judges_pairs:
            raise InputError(
                f"has no {MASK} to fill, and this model does not classify pairs of texts", "pretrained", path=where
            )
        if masked and self.size.causal:
            raise InputError(
                "was trained from left to right and fills no masks; use a model of model.causal=false",
                "pretrained",
                self.folder,
                where=where,
            )
        unpaired = {"next_sentence", "pooler"} & self.initialised
        if lost := sorted({"masked_head"} & self.initialised if masked else unpaired):
            raise InputError(
                f"has no {' and '.join(lost)}, which "
                f"{'fills masks' if masked else 'classifies pairs'}; use a model that has it",
                "pretrained",
                self.folder,
                where=where,
            )
        places, pair = self.logits_of(where, *(mask_filling.pieces(self.wordpiece, text) for text in (first, *others)))
        answer: Answer = {"text": line}
        if masked:
            answer["masks"] = [mask_filling.likeliest(self.wordpiece, one, self.top, digits=6) for one in places]
        if pair is not None and not unpaired and second is not None:
            answer["next"] = round(float(pair.softmax(-1)[0, 0]), 6)
        return answer

    def logits_of(self, where: str, first: Ids, second: Ids | None = None) -> Any:
        """Return the logits of each mask `(V,)`, and of a pair `(1, 2)`; in a long text by the tokens around each mask.

        Raises:
            InputError: a mask is in the part of a long pair that is not read.
        """
        from model.huggingface.mask_filling import batch_of

        room, mask = self.longest - 2, self.wordpiece.mask
        tokens = len(frame(self.wordpiece, first, second)[0])
        self.wordpiece.coverage.shortened += tokens > self.longest
        if second is not None:
            cut = next(pieces(self.wordpiece, first, second, TruncationConfig(self.longest)))
            ids, start = frame(self.wordpiece, *cut)
            if sum(map(np.count_nonzero, (first == mask, second == mask))) > np.count_nonzero(ids == mask):
                raise InputError(f"has {tokens} tokens; must be at most {self.longest}", path=where)
            return self.model(batch_of(ids, start, mask))
        rows, done = [], dict[int, Any]()
        for place in np.flatnonzero(first == mask).tolist():
            begin = max(0, min(place - room // 2, len(first) - room))
            if begin not in done:
                ids, start = frame(self.wordpiece, first[begin : begin + room], None)
                done[begin], _ = self.model(batch_of(ids, start, mask))
            rows.append(done[begin][np.count_nonzero(first[begin:place] == mask)])
        return rows, None


def texts_of(row: Row, most: int) -> list[str]:
    """Return the texts of a row, of a line `most`.

    Raises:
        InputError: a table has more of them.
    """
    texts = row.parts(most)
    if len(texts) > most:
        raise InputError(
            f"{len(texts)} columns, but the model reads {most}; set columns to these", "columns", path=row.where
        )
    return texts


@dataclass(frozen=True)
class TunedModel:
    """A fine-tuned model."""

    found: "SavedModel"
    wordpiece: WordPiece
    longest: int
    int8: "QuantizedModel | None"

    def predicted(self, samples: Any) -> Any:
        """Return the logits of samples."""
        from model.encoders.device import device_of
        from model.finetuning import loop

        if self.int8:
            return self.int8.logits(samples, self.found.model.config.kind)
        return loop.predict(self.found.model, samples, device_of())

    def logits_of(self, first: list[str], second: list[str] | None) -> Any:
        """Return the logits of texts, or of pairs."""
        framing = TruncationConfig(self.longest, self.found.reading.truncation)
        return self.predicted(tokenize(self.wordpiece, first, second, [0.0] * len(first), framing))

    def classes(self, block: Rows) -> Replies:
        """Predict the class of each line with all probabilities, or its score.

        Raises:
            InputError: the model classifies pairs, and a line has no tab.
        """
        from scipy.special import expit, softmax

        answers, labels = [], self.found.labels
        for row, logits in zip(block, self.class_logits(list(map(self.sides, block))), strict=True):
            if not labels:
                answers.append({"text": row.text, "score": round_score(float(logits[0]))})
                continue
            several = self.found.model.config.several
            shares = expit(logits) if several else softmax(logits)
            every = dict(zip(labels, (round(share, 6) for share in shares.tolist()), strict=True))
            label = [name for name, logit in zip(labels, logits, strict=True) if logit > 0]
            given = {"labels": label} if several else {"label": labels[int(logits.argmax())]}
            answers.append({"text": row.text, **given, "probabilities": every})
        return answers

    def sides(self, row: Row) -> tuple[str, str | None]:
        """Return the one or two texts of a row; a model of single texts reads a tab as a space.

        Raises:
            InputError: the model classifies pairs, and there is one text, or the other way round.
        """
        first, *others = texts_of(row, self.found.texts or 2)
        if self.found.texts == 2 and not others:
            raise InputError(
                "has no tab, but the model classifies pairs; write two texts, separated by a tab, or set two columns",
                path=row.where,
            )
        return first, others[0] if others else None

    def class_logits(self, parts: list[tuple[str, str | None]]) -> Iterator[Any]:
        """Yield the logits of single texts and of pairs, in their order."""
        for paired, rows in itertools.groupby(parts, lambda part: part[1] is not None):
            first, second = zip(*rows, strict=True)
            yield from self.logits_of(list(first), list(second) if paired else None)

    def tags(self, block: Rows) -> Replies:
        """Predict the tags of the words of each line, with the characters at which they begin and end."""
        task = TaskConfig(name="predict", kind="tagging", label="1", labels=self.found.labels, metrics=["f1"])
        kind = Tagging("", task, self.wordpiece, self.longest)
        texts, how = [texts_of(row, 1)[0] for row in block], self.found.reading
        spans = [words_in(text, how.starts, how.ends, how.divides, how.characters) for text in texts]
        words = [[text[start:end] for start, end in each] for text, each in zip(texts, spans, strict=True)]
        part = kind.part_of([(one, []) for one in words], False, [], "")
        every = zip(words, spans, kind.decode(part, self.predicted(part.samples)), strict=True)
        return [{"words": one, "offsets": places, "tags": given} for one, places, given in every]

    def passages(self, block: Rows) -> Replies:
        """Predict the answer in each passage; `none` is the margin by which no answer is more likely.

        Raises:
            InputError: a line does not have two parts.
        """
        questions = []
        for row in block:
            question, *passage = texts_of(row, 2)
            if not passage:
                raise InputError("expected a tab between question and passage", path=row.where)
            questions.append(Question(row.where, question, passage[0], [], 0))
        task = TaskConfig(name="predict", kind="answers", metrics=["f1"])
        kind = Answers("", task, self.wordpiece, self.longest, self.found.reading.stride)
        part = kind.part_of(questions)
        decided = kind.decode(part, self.predicted(part.samples))
        return [
            {"question": one.text, "answer": text, "none": margin}
            for one, (text, margin) in zip(questions, decided, strict=True)
        ]

    def endings(self, block: Rows) -> Replies:
        """Predict the most likely ending of each line.

        Raises:
            InputError: a line has fewer than two endings.
        """
        answers = []
        for row in block:
            first, *others = row.parts()
            if len(given := [place for place, text in enumerate(others) if text.strip()]) < 2:
                raise InputError("expected a sentence and at least two endings, separated by tabs", path=row.where)
            scores = self.logits_of([first] * len(others), others)
            best = max(given, key=lambda place: float(scores[place][0]))
            answers.append({"text": first, "ending": others[best], "place": best})
        return answers


def main() -> None:
    """Run the command."""
    entry_point.run("predict", PredictConfig, predict)


if __name__ == "__main__":
    main()
