"""Every kind of task through the whole grid: learnt, beside its baselines, written for others."""

import csv
import json
import unicodedata

import numpy as np
import pytest

from model.finetuning.features import TruncationConfig
from pipeline import evaluate
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.errors import InputError
from pipeline.evaluation import examples
from pipeline.evaluation.task_types import read_sides
from pipeline.evaluation.task_types.classification import Classification
from pipeline.stages import stage
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece
from tests.model.sizes import small
from tests.pipeline.evaluation.letter_model import write_letter_model
from tests.support import forked
from tests.support.refusals import refused

WORDS = [*SPECIAL, *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh")]
CONFIG = small(len(WORDS), hidden=32, feed_forward=64, dropout=0.0, attention_dropout=0.0)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A tiny model with random weights whose words are letters."""
    return write_letter_model(tmp_path_factory, CONFIG, WORDS)


@pytest.fixture
def run(tmp_path, model_folder):
    """Evaluate a task whose files are in tmp_path/data; the result is in tmp_path/out."""
    (tmp_path / "data").mkdir()

    def run(task, **settings):
        fixed = {"batch_sizes": [8], "learning_rates": [5e-3], "sequence_length": 40, "threads": 1}
        places = {"workdir": str(tmp_path), "out": str(tmp_path / "out"), "data": str(tmp_path / "data")}
        config = EvaluateConfig(task=task, pretrained=str(model_folder), **places, **(fixed | settings))
        return stage.run("evaluate", config, evaluate.make, in_place=True).figures

    return run


def write_tags(path, count):
    """A place begins with `ab` and goes on with `b`."""
    draw = np.random.default_rng(0)
    tags = {"ab": "B-place", "b": "I-place"}
    blocks = []
    for _ in range(count):
        words = draw.choice(["ab", "b", "c", "dd", "e"], draw.integers(3, 9))
        blocks.append("".join(f"{word}\t{tags.get(word, 'O')}\n" for word in words))
    path.write_text("\n".join(blocks))


def test_entities_are_learnt_from_one_file_and_written_for_conlleval(tmp_path, run):
    write_tags(tmp_path / "data" / "all.conll", 200)
    columns = {"kind": "tagging", "columns": ["0"], "label": "-1", "metrics": ["f1", "accuracy"]}
    task = TaskConfig(name="toy", train="all.conll", dev_share=0.2, **columns)
    found = run(task, epochs=2)
    assert found["score"] > 0.9
    assert found["majority"] == 0.0
    assert found["majority_scores"]["accuracy"] > 0.5
    assert found["baseline"] is not None
    assert sum(found["rows"].values()) == 200
    assert 20 < found["rows"]["dev"] < 65
    lines = (tmp_path / "out" / "predictions.conll").read_text().splitlines()
    rows = [line.split(" ") for line in lines if line]
    assert lines.count("") == found["rows"]["dev"] - 1
    same = [true == given for _, true, given in rows]
    assert np.mean(same) == pytest.approx(found["scores"]["accuracy"])


def write_questions(path, articles, unanswerable):
    """The answer is `gh`, at times not there; a passage may take several windows."""
    draw = np.random.default_rng(0)
    data = []
    for number in range(articles):
        paragraphs = []
        for part in range(3):
            here = not unanswerable or (number + part) % 3 > 0
            sides = [" ".join(draw.choice(list("bcdef"), draw.integers(1, 30))) for _ in "ab"]
            answer = {"text": "gh", "answer_start": len(sides[0]) + 1}
            question = {"id": f"{number}-{part}", "question": "a", "answers": [answer] * here}
            context = f"{sides[0]} {'gh' if here else 'b'} {sides[1]}"
            paragraphs.append({"context": context, "qas": [question | {"is_impossible": not here}]})
        data.append({"title": f"Article {number}", "paragraphs": paragraphs})
    path.write_text(json.dumps({"data": data}))


@pytest.mark.parametrize("unanswerable", [False, True])
def test_answers_are_learnt_and_written_for_the_official_scripts(tmp_path, run, unanswerable):
    write_questions(tmp_path / "data" / "all.json", 60, unanswerable)
    task = TaskConfig(name="toy", kind="answers", metrics=["f1", "exact"], train="all.json", dev_share=0.2)
    found = run(task, epochs=4, stride=10, baseline=False)
    assert found["score"] > 0.8
    assert found["score"] > found["majority"]
    assert found["rows"]["dev"] % 3 == 0  # whole articles
    answers = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert len(answers) == found["rows"]["dev"]
    assert (tmp_path / "out" / "null_odds.json").exists() == unanswerable
    if unanswerable:
        odds = json.loads((tmp_path / "out" / "null_odds.json").read_text())
        assert [odds[name] > 0 for name in answers] == [not text for text in answers.values()]
    else:
        assert all(answers.values())


# As train.csv of SWAG begins; the columns of val.csv are the same.
SWAG = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
SWAG += ["ending0", "ending1", "ending2", "ending3", "label"]


def test_endings_are_learnt_from_the_official_columns(tmp_path, run):
    """The right ending is the one with an `h`."""
    draw = np.random.default_rng(0)
    task = examples.task_of("swag")
    for name, count in ((task.train, 120), (task.dev, 40)):
        with (tmp_path / "data" / name).open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(SWAG)
            for number in range(count):
                first, second, *ends = (" ".join(draw.choice(list("abcde"), 3)) for _ in range(6))
                label = number % 4
                ends[label] += ", h"
                start = [number, "lsmdc1", number, f"{first}, {second}", f"{first},", second, "gold"]
                table.writerow([*start, *ends, label])
    found = run(task, epochs=4, learning_rates=[3e-3])
    assert found["rows"] == {"train": 120, "dev": 40}
    assert found["score"] > 0.9
    assert found["majority"] == 0.25
    assert found["baseline"] is not None


def test_equal_texts_are_on_one_side(tmp_path, model_folder):
    rows = [
        json.dumps({"body": " ".join(letters), "good": "á" in letters, "note": None}, ensure_ascii=False)
        for letters in np.random.default_rng(0).choice(list("ábcde"), (300, 3)).tolist()
    ]
    written = [unicodedata.normalize(("NFC", "NFD")[place % 2], row) for place, row in enumerate(rows)]
    (tmp_path / "mine.jsonl").write_text("\n".join(written) + "\n")
    columns = {"columns": ["body"], "label": "good", "labels": ["false", "true"], "metrics": ["accuracy"]}
    task = TaskConfig(name="mine", train="mine.jsonl", dev_share=0.25, **columns)
    kind = Classification(str(tmp_path), task, WordPiece.load(model_folder), TruncationConfig(40))
    train, dev = read_sides(kind, task, tmp_path, None)
    texts = [{tuple(ids.tolist()) for ids in part.samples.ids} for part in (train, dev)]
    assert not texts[0] & texts[1]
    assert (len(train) + len(dev), len(texts[0]) + len(texts[1])) == (300, len(set(rows)))
    assert len(dev) > 30
    assert len(read_sides(kind, task, tmp_path, 7)[0]) == 7
    with refused(InputError, "for dev", key="task.dev_share"):
        read_sides(kind, TaskConfig(**{**vars(task), "dev_share": 1e-9}), tmp_path, None)


@pytest.mark.slow
def test_a_task_may_be_a_file_of_ones_own_as_the_page_says(tmp_path, model_folder, root):
    said = (root / "docs/stages/evaluate.md").read_text().partition("# FOLDER/task/mine.yaml")[2]
    (tmp_path / "conf" / "task").mkdir(parents=True)
    content = said.partition("\n")[2].partition("```")[0]
    (tmp_path / "conf" / "task" / "mine.yaml").write_text(content)
    rows = [json.dumps({"text": "b" * number, "stars": 1 + number % 5}) for number in range(99)]
    (tmp_path / "reviews.jsonl").write_text("\n".join(rows))
    words = f"+task=mine data={tmp_path} pretrained={model_folder} workdir={tmp_path}".split()
    words += ["epochs=1", "sequence_length=40", "baseline=false", "threads=1"]
    done = forked.module("pipeline.evaluate", "--config-dir", tmp_path / "conf", *words)
    assert done.returncode == 0, done.stderr
    assert "evaluate: mine accuracy" in done.stdout
    assert (tmp_path / "evaluate-mine" / "results.json").exists()
