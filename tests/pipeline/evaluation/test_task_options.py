"""What a task may have beyond one label and one dev file."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from model.finetuning import loop, saved_model
from model.finetuning.features import TruncationConfig, tokenize
from pipeline import predict
from pipeline.cli import composing
from pipeline.config import EvaluateConfig, PredictConfig, TaskConfig
from pipeline.errors import ConfigError, InputError
from pipeline.evaluation import examples, grid_search
from pipeline.tokenization.wordpiece import WordPiece
from tests.model.sizes import small
from tests.pipeline.evaluation.letter_model import write_letter_model
from tests.pipeline.evaluation.toy_task import WORDS, configured, run
from tests.support.refusals import refused


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return write_letter_model(tmp_path_factory, small(len(WORDS), hidden=32, feed_forward=64), WORDS)


@pytest.fixture
def config(tmp_path, model_folder):
    return configured(tmp_path, model_folder)


def test_more_dev_files_and_a_test_set_have_a_score_each(config):
    folder = Path(config.data) / "Toy"
    head, *rows = (folder / "dev.tsv").read_text().splitlines()
    for name, part in (("dev-1.tsv", rows[:60]), ("dev-2.tsv", rows[60:]), ("held.tsv", [*rows[:30], "broken"])):
        (folder / name).write_text("\n".join([head, *part]) + "\n")
    task = replace(config.task, dev="dev-*.tsv", test="held.tsv")
    made = run(replace(config, task=task, baseline=False))
    found = made.figures
    assert f"accuracy {found['score']:.3f}, dev-2.tsv" in made.summary, "and those of other files"
    assert found["rows"]["dev"] == 60
    assert {name: one["rows"]["dev"] for name, one in found["also"].items()} == {"dev-2.tsv": 40, "held.tsv": 30}
    assert found["faults"] == [f"{folder / 'held.tsv'}, line 32: 1 fields instead of 4"]
    same = ["1 of 40 dev-2.tsv examples are in train too", "30 of 30 held.tsv examples are in dev too"]
    assert found["remarks"][1:] == same
    rows = (Path(config.out) / "predictions.tsv").read_text().splitlines()[1:31]
    right = np.mean([row.split("\t")[1] == row.split("\t")[2] for row in rows])
    assert found["also"]["held.tsv"]["score"] == pytest.approx(right)
    with refused(InputError, "task.dev=FILE", path=str(folder / "none*")):
        run(replace(config, task=replace(task, dev="none*")))


def test_another_task_is_scored_by_the_classes_of_the_model(config):
    tasks = {"mirror": replace(config.task, labels=config.task.labels[::-1])}
    config = replace(config, task=replace(config.task, also=[*tasks]), own_tasks=tasks, baseline=False, epochs=4)
    found = run(config).figures
    assert found["also"]["mirror"]["score"] == found["score"] != 0.5
    for other in ({"labels": ["no", "perhaps"]}, {"labels": [], "metrics": ["pearson"]}):
        with refused(ConfigError, "mirror", key="task.also"):
            examples.also_of(replace(config, own_tasks={"mirror": replace(config.task, **other)}))


def test_another_task_may_have_several_dev_files(config):
    own = {"twin": replace(config.task, dev=["dev.tsv", "tr*.tsv"])}
    made = replace(config, task=replace(config.task, also=["twin"]), own_tasks=own)
    found = grid_search.other_tasks(made, WordPiece.load(config.pretrained))
    assert list(found) == ["twin", "twin train.tsv"]


def test_the_test_set_of_a_submission_is_scored_only_where_it_has_labels(config):
    folder, task = Path(config.data) / "Toy", replace(config.task, test="test.tsv", submission="Toy")
    assert examples.own_test(config.data, task) is None
    for head, found in (("index\tsentence1", None), ("index\tsentence1\tlabel", "test.tsv")):
        (folder / "test.tsv").write_text(f"{head}\n")
        assert examples.own_test(config.data, task) == found


def test_the_epoch_that_is_best_on_dev_is_scored_and_kept(config):
    best = run(replace(config, epochs=4, baseline=False, keep=True, best_epoch=True, learning_rates=[1e-2]))
    epochs = [one["scores"]["accuracy"] for one in best.figures["runs"][0]["epochs"]]
    assert best.figures["score"] == max(epochs)
    rows = [row.split("\t") for row in (Path(config.out) / "predictions.tsv").read_text().splitlines()[1:]]
    assert np.mean([row[1] == row[2] for row in rows]) == pytest.approx(max(epochs))
    number = epochs.index(max(epochs)) + 1
    assert f"| epochs | {number} of 4 |" in (Path(config.out) / "model" / "README.md").read_text()
    _, kept = saved_model.load(Path(config.out) / "model")
    texts = [[row[column] for row in rows] for column in (3, 4)]
    samples = tokenize(WordPiece.load(config.pretrained), *texts, [0.0] * len(rows), TruncationConfig(16))
    answers = [kept.labels[int(one.argmax())] for one in loop.predict(kept.model, samples, torch.device("cpu"))]
    assert answers == [row[1] for row in rows]


def test_several_labels_are_learnt_and_answered(config, monkeypatch, capsys):
    """A text has the label of each letter that is in it."""
    draw = np.random.default_rng(0)
    for name, count in (("train", 400), ("dev", 60)):
        texts = [draw.choice(list("abcdef"), 5).tolist() for _ in range(count)]
        rows = [json.dumps({"text": " ".join(t), "label": sorted({*t} & {*"abc"})}) for t in texts]
        (Path(config.data) / f"{name}.jsonl").write_text("\n".join(rows))
    files = {"train": "train.jsonl", "dev": "dev.jsonl", "multilabel": True, "metrics": ["macro_f1", "micro_f1"]}
    task = TaskConfig(name="own", columns=["text"], labels=["a", "b", "c"], **files)
    config = replace(config, task=task, epochs=5, learning_rates=[1e-2], keep=True, baseline=False)
    found = run(replace(config, class_weights="balanced")).figures
    assert found["score"] > 0.6 > 0.4 > found["majority"]
    row = (Path(config.out) / "predictions.tsv").read_text().splitlines()[1].split("\t")
    assert row[2] == "|".join(sorted({*row[3].split()} & {*"abc"}))
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{row[3]}\n"))
    predict.predict(PredictConfig(pretrained=str(Path(config.out) / "model")))
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "|".join(answer["labels"]) == row[1]
    assert answer["labels"] == [label for label, share in answer["probabilities"].items() if share > 0.5]


@pytest.mark.parametrize(
    ("weights", "labels", "kind"),
    [("even", ["a", "b"], "classification"), ([1.0], ["a", "b"], "classification"), ("balanced", [], "answers")],
)
def test_weights_that_fit_no_classes_are_refused(config, weights, labels, kind):
    task = replace(config.task, kind=kind, labels=labels, metrics=["f1"])
    with refused(ConfigError, key="class_weights"):
        replace(config, task=task, class_weights=weights)


def test_balanced_weights_are_those_of_scikit_learn():
    labels = np.array([0.0, 0, 0, 1, 2, 2])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert grid_search.balanced(labels, 3) == pytest.approx(expected)
    tags = [np.array([-100, 0, 0, 0]), np.array([1, 2, 2, -100])]
    assert grid_search.balanced(tags, 3) == pytest.approx(expected)
    there = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0]])
    assert grid_search.balanced(there, 3) == [1, 2, 1], "what all have is learnt too"


def test_what_a_head_cannot_tell_apart_is_refused(config):
    rows = [json.dumps({"text": letter, "label": 1.7e12 + place}) for place, letter in enumerate("abc")]
    (Path(config.data) / "train.jsonl").write_text("\n".join(rows))
    task = TaskConfig(name="own", columns=["text"], train="train.jsonl", dev="train.jsonl", metrics=["pearson"])
    with refused(InputError, "subtract 1700000000001", path="train.jsonl"):
        run(replace(config, task=task))


@pytest.mark.parametrize("word", ["--config-dir", "hydra.searchpath"])
def test_another_task_may_be_in_a_folder_of_ones_own(config, tmp_path, word):
    (tmp_path / "conf" / "task").mkdir(parents=True)
    mine = "name: mine\nfolder: Toy\ncolumns: [sentence1]\nlabels: [neutral, entailment]\nmetrics: [macro_f1]\n"
    (tmp_path / "conf" / "task" / "mine.yaml").write_text(mine)
    path = tmp_path / "conf"
    own = [word, str(path)] if word == "--config-dir" else [f"{word}=[file://{path}]"]
    words = [f"data={config.data}", f"pretrained={config.pretrained}", "+task=mnli"]
    made = composing.compose_config("evaluate", EvaluateConfig, [*own, *words, "task.also=[mine,mnli_mm]"], False)
    assert list(made.own_tasks) == ["mine"]
    also = examples.also_of(made)
    assert {name: task.metrics for name, task in also.items()} == {"mine": ["macro_f1"], "mnli_mm": ["accuracy"]}
    with refused(ConfigError, "mnli_mm", key="task.also", value="mnli_mn"):
        composing.compose_config("evaluate", EvaluateConfig, [*words, "task.also=[mnli_mn]"], False)
