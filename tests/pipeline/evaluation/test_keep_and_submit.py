"""What `keep` and `submit` cannot do is refused before any training."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from model.encoders.architectures import build_model
from model.finetuning.features import Samples
from model.huggingface import bert_format
from pipeline.config import EvaluateConfig
from pipeline.errors import ConfigError, InputError
from pipeline.evaluation import answers, examples, grid_search, table_files
from pipeline.evaluation.task_types import Dataset
from tests.model import tiny_bert
from tests.support.refusals import refused


def configured(folder, task, **settings):
    """Return a configuration of `task`, whose files and model are below `folder`."""
    places = {name: str(folder / name) for name in ("out", "data")} | {"pretrained": str(folder / "model")}
    return EvaluateConfig(workdir=str(folder), task=task, sequence_length=16, **places, **settings)


@pytest.mark.parametrize("key", ["keep", "submit"])
@pytest.mark.parametrize("pooling", ["mean", "max", "attention"])
def test_a_model_of_chunks_is_neither_kept_nor_submitted(tmp_path, key, pooling):
    chunks = {"truncation": "chunks", "chunk_pooling": pooling}
    configured(tmp_path, examples.task_of("rte"), **chunks)
    with refused(ConfigError, "truncation=chunks: ", key="truncation"):
        configured(tmp_path, examples.task_of("rte"), **chunks, **{key: True})


def test_endings_are_not_cut_into_chunks(tmp_path):
    with refused(ConfigError, key="truncation"):
        configured(tmp_path, examples.task_of("swag"), truncation="chunks")


@pytest.mark.parametrize("name", ["own", "sample_next", "squad", "babylm_rte"])
def test_a_task_without_a_test_set_is_not_submitted(tmp_path, name):
    task = examples.task_of(name)
    configured(tmp_path, task, keep=True)
    with refused(ConfigError, f"submit=true: .*{name}", key="submit"):
        configured(tmp_path, task, submit=True)
    configured(tmp_path, replace(task, test="test.tsv", submission="Mine"), submit=True)


def test_a_larger_grid_has_the_runs_of_a_smaller_one(tmp_path):
    task = examples.task_of("rte")
    small = configured(tmp_path, task, batch_sizes=[8], learning_rates=[1e-3], seeds=[1], baseline=False)
    large = grid_search.grid_of(replace(small, batch_sizes=[16, 8], seeds=[2, 1], baseline=True, keep=True))
    assert grid_search.grid_of(small).items() <= large.items()
    assert len(set(large.values())) == len(large) == 8


def test_the_best_point_is_that_of_the_highest_mean_over_its_seeds():
    scores = {(8, 1e-3): [0.1, 0.9], (8, 1e-4): [0.6, 0.7], (16, 1e-4): [0.3, 0.8]}
    records = [
        {"batch_size": size, "learning_rate": rate, "scores": {"accuracy": score, "f1": score / 2}}
        for (size, rate), seeds in scores.items()
        for score in seeds
    ]
    found, seeds = grid_search.best_point(examples.task_of("rte"), records)
    assert seeds == records[2:4]
    assert found["point"] == {"batch_size": 8, "learning_rate": 1e-4, "seeds": 2}
    figures = (found["score"], found["scores"]["f1"], found["deviation"], found["best"])
    assert figures == pytest.approx((0.65, 0.325, np.std([0.6, 0.7], ddof=1), 0.9))


def test_only_the_model_of_the_best_run_is_kept(tmp_path):
    runs = [grid_search.Trial("pretrained", 16, 1e-3, seed) for seed in (1, 2, 3)]
    for run in runs:
        (tmp_path / run.stem).mkdir()
    done = {run: {"scores": {"accuracy": score}} for run, score in zip(runs, (0.1, 0.3, 0.2), strict=True)}
    runs += (diverged := [replace(run, learning_rate=1.0) for run in runs[:2]])
    done |= {diverged[0]: {"scores": {}}, diverged[1]: {"scores": {"accuracy": 0.9}}}
    config = configured(tmp_path, examples.task_of("rte"), keep=True)
    assert grid_search.only_best(config, tmp_path, runs, done) == runs[1]
    assert list(tmp_path.iterdir()) == [tmp_path / runs[1].stem]


def test_only_a_task_of_classes_says_how_often_each_class_got_which_answer():
    part = Dataset(Samples([], np.zeros(0), None), [1, 0], [("a", "b"), ("c", "d")])
    assert answers.by_class(examples.task_of("stsb"), part, [1.0, 2.0]) == {}
    task = examples.task_of("rte")
    yes, no = task.labels
    found = answers.by_class(task, part, [0, 0])
    assert found["confusion"] == {yes: {yes: 1, no: 0}, no: {yes: 1, no: 0}}
    assert found["wrong"] == [{"texts": ["a", "b"], "label": no, "answer": yes}]
    many = replace(task, labels=[yes, no, *map(str, range(99))])
    assert answers.by_class(many, part, [0, 0]) == {"confusion": {}, "wrong": found["wrong"]}, "no table of millions"


def test_answers_to_dev_are_read_by_readers_of_csv():
    texts = [('"Well, he said', "b"), ('the "c" of', ' "d\n')]
    part = Dataset(Samples([], np.zeros(0), None), [1, 0], texts)
    task = examples.task_of("rte")
    written = answers.dev_rows(task, part, [0, 0])
    found = list(csv.DictReader(written.splitlines(), delimiter="\t"))
    assert [(row["text 1"], row["text 2"]) for row in found] == [(a, b.strip()) for a, b in texts]
    assert [row["prediction"] for row in found] == [task.labels[0]] * 2
    assert [row["label"] for row in found] == task.labels[::-1]
    assert table_files.parse("a.tsv", written.encode(), True).rows == [list(row.values()) for row in found]


@pytest.fixture
def pairs(tmp_path):
    """Return a folder with RTE's train and dev, without its test set, and a causal model."""
    (tmp_path / "data" / "RTE").mkdir(parents=True)
    for name in ("train", "dev"):
        (tmp_path / "data" / "RTE" / f"{name}.tsv").write_text(
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n"
        )
    size = replace(tiny_bert.CONFIG, causal=True)
    vocab = tiny_bert.make_vocabulary(tmp_path / "vocab")
    bert_format.save(tmp_path / "model", size, build_model(size).state_dict(), vocab)
    return tmp_path


def test_a_causal_model_is_refused_before_it_is_trained(pairs):
    task = examples.task_of("rte")
    context = grid_search.prepare(configured(pairs, task))
    assert (len(context.train), grid_search.score_of(context, []).title) == (2, "RTE")
    with refused(InputError, "causal", path=str(pairs / "model")):
        grid_search.prepare(configured(pairs, task, keep=True))


def test_a_test_set_that_is_missing_or_malformed_is_named_before_training(pairs):
    path = pairs / "data" / "RTE" / "test.tsv"
    rows = ["index\tsentence1\tsentence2", "0\ta\tb", "1\tc", "2\te\tf"]
    task = examples.task_of("rte")
    with refused(InputError, r"RTE/test\.tsv", key="data"):
        grid_search.prepare(configured(pairs, task, submit=True))
    path.write_text("\n".join(rows) + "\n")
    with refused(InputError, r"RTE/test\.tsv, line 3: 2 fields", key="submit"):
        grid_search.prepare(configured(pairs, task, submit=True))
    path.write_text("\n".join([*rows[:2], *rows[3:]]) + "\n")
    assert [one for one, *_ in answers.answered_tasks(configured(pairs, task, submit=True))] == [task]


def test_other_sets_of_a_task_without_a_test_set_have_to_be_there(pairs):
    task = replace(examples.task_of("rte"), test=None, also=["qnli"])
    with refused(ConfigError, "submit=true: ", key="submit"):
        grid_search.prepare(configured(pairs, task, submit=True))
