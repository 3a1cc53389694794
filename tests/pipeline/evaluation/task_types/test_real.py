"""Real questions, names and sentences through the whole grid, with few rows of each."""

import json

import pytest

from pipeline import evaluate
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.evaluation import examples
from pipeline.stages import stage
from tests.model.sizes import small
from tests.pipeline.evaluation.letter_model import write_letter_model

pytestmark = pytest.mark.shared_data
VOCAB = "vocab/bert-base-uncased-vocab.txt"


@pytest.fixture(scope="module")
def model_folder(shared_data, tmp_path_factory):
    """A tiny model with random weights and the published vocabulary."""
    words = (shared_data / VOCAB).read_text().splitlines()
    return write_letter_model(tmp_path_factory, small(len(words), layers=1, positions=128), words)


def task_of(name, **changes):
    return TaskConfig(**{**vars(examples.task_of(name)), **changes})


NAMES = task_of("wnut17", train="emerging.dev.conll", dev_share=0.1)
QUESTIONS = task_of("xquad", dev_share=0.1)
PAIRS = task_of("qnli", train="dev.tsv", dev_share=0.02)


@pytest.mark.parametrize(
    ("task", "folder", "files"),
    [(NAMES, "ner/wnut17", {"predictions.conll"}), (QUESTIONS, "squad", {"predictions.json"}), (PAIRS, "glue", set())],
    ids=["wnut17", "xquad", "qnli"],
)
def test_real_files_are_trained_on_and_answered(shared_data, tmp_path, model_folder, task, folder, files):
    out = tmp_path / "out"
    places = {"workdir": str(tmp_path), "out": str(out), "data": str(shared_data / folder)}
    sizes = {"epochs": 1, "maximum_rows": 48, "sequence_length": 128, "threads": 1}
    config = EvaluateConfig(task=task, pretrained=str(model_folder), **places, **sizes)
    found = stage.run("evaluate", config, evaluate.make, in_place=True).figures
    assert found["rows"]["train"] == 48
    assert found["rows"]["dev"] > 40
    assert found["malformed"] == 0
    assert 0 <= found["baseline"] <= 1
    assert files == {path.name for path in out.glob("predictions.*")} - {"predictions.tsv"}
    if task is QUESTIONS:
        said = json.loads((out / "predictions.json").read_text())
        passages = json.loads((shared_data / folder / task.train).read_text())["data"]
        contexts = {
            one["id"]: paragraph["context"]
            for article in passages
            for paragraph in article["paragraphs"]
            for one in paragraph["qas"]
        }
        assert all(text and text in contexts[name] for name, text in said.items())
