import json
import shlex
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from model.finetuning import loop, saved_model
from pipeline.config import TaskConfig
from pipeline.errors import ConfigError, Diverged, InputError
from pipeline.evaluation import examples, grid_search
from pipeline.evaluation.task_types import remarks_of
from tests.model.sizes import small
from tests.pipeline.evaluation.letter_model import write_letter_model
from tests.pipeline.evaluation.toy_task import TASK, WORDS, configured, run
from tests.support import forked
from tests.support.refusals import refused


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A tiny model with random weights, as `convert` leaves it."""
    return write_letter_model(tmp_path_factory, small(len(WORDS), hidden=32, feed_forward=64), WORDS)


@pytest.fixture(scope="module")
def modern_folder(tmp_path_factory):
    """Likewise, a modern one, with the same vocabulary."""
    sizes = {"layers": 3, "hidden": 32, "feed_forward": 48, "local_window": 8, "dropout": 0.0, "attention_dropout": 0.0}
    config = small(len(WORDS), architecture="modernbert", classifier_pooling="mean", **sizes)
    return write_letter_model(tmp_path_factory, config, WORDS)


@pytest.fixture
def config(tmp_path, model_folder):
    return configured(tmp_path, model_folder)


@pytest.mark.slow
def test_a_task_that_can_be_learnt_is_learnt_and_stands_beside_chance(config):
    manifest = run(replace(config, epochs=10))
    found = json.loads((Path(config.out) / "results.json").read_text())
    assert found == manifest.figures
    assert found["sample"]
    assert (found["metric"], found["majority"]) == ("accuracy", 0.5)
    assert found["score"] > 0.8
    assert set(found["scores"]) == set(found["baseline_scores"]) == {"accuracy", "f1"}
    assert manifest.summary.startswith(f"Toy (sample task) accuracy {found['score']:.3f} (random ")
    assert ", majority 0.500" in manifest.summary
    assert f") with {manifest.config['pretrained']}" in manifest.summary
    assert manifest.summary.endswith("; 0.000% of the characters unknown")
    assert found["coverage"]["tokenized_characters"] > found["coverage"]["unknown_characters"] == 0


def test_the_predictions_are_those_that_were_scored(config):
    found = run(config).figures
    rows = (Path(config.out) / "predictions.tsv").read_text().splitlines()
    dev = (Path(config.data) / "Toy" / "dev.tsv").read_text().splitlines()
    assert rows[0] == "index\tprediction\tlabel\ttext 1\ttext 2"
    pairs = [(a.split("\t")[1], b.split("\t")[3]) for a, b in zip(rows[1:], dev[1:], strict=True)]
    given = [[label, *texts] for _, *texts, label in (row.split("\t") for row in dev[1:])]
    assert [row.split("\t")[2:] for row in rows[1:]] == given
    assert np.mean([a == b for a, b in pairs]) == pytest.approx(found["best"])
    asked = {(label, answer): count for label, row in found["confusion"].items() for answer, count in row.items()}
    assert {pair: count for pair, count in asked.items() if count} == Counter(
        (label, answer) for answer, label in pairs
    )
    wrong = [
        {"texts": row.split("\t")[1:3], "label": label, "answer": answer}
        for row, (answer, label) in zip(dev[1:], pairs, strict=True)
        if answer != label
    ]
    assert found["wrong"] == wrong[:10] != []


def test_dev_examples_that_are_in_train_are_counted(config):
    folder = Path(config.data) / "Toy"
    train, dev = (
        [tuple(row.split("\t")[1:3]) for row in (folder / f"{name}.tsv").read_text().splitlines()[1:]]
        for name in ("train", "dev")
    )
    same = sum(texts in train for texts in dev)
    assert same
    (remark,) = evaluate_remarks(replace(config, sequence_length=40))
    assert remark.startswith(f"{same} of 100 ")
    alike = replace(config, task=replace(TASK, dev="train.tsv"))
    (remark,) = evaluate_remarks(alike)
    assert remark.startswith("300 of 300 ")
    extra = replace(alike, task=replace(TASK, labels=[*TASK.labels, "absent"], metrics=["accuracy"]))
    assert "label absent" in evaluate_remarks(extra)[-1]
    found = run(replace(alike, baseline=False))
    assert found.figures["remarks"] == [remark]
    assert remark in found.summary


def test_examples_without_a_text_are_counted(config):
    path = Path(config.data) / "Toy" / "train.tsv"
    header, *rows = [row.split("\t") for row in path.read_text().splitlines()]
    path.write_text("\n".join("\t".join(row) for row in [header, *([r[0], " ", *r[2:]] for r in rows[:7]), *rows[7:]]))
    one = replace(config, task=replace(TASK, columns=TASK.columns[:1]))
    assert "7 of 400 examples have no text" in evaluate_remarks(one)


@pytest.mark.parametrize(
    ("more", "labels", "remarks"),
    [
        ({"labels": [*"ab"], "metrics": ["macro_f1"]}, ("ab", "aa"), ["no row of dev has the label b"]),
        ({"labels": [*"ab"], "metrics": ["accuracy"]}, ("ab", "aa"), []),
        (
            {"labels": [*"ab"], "metrics": ["micro_f1"], "multilabel": True},
            ("  ", "ab"),
            ["no row of train has the label a, b"],
        ),
        ({"metrics": ["pearson"]}, ("12", "77"), ["all 2 rows of dev have the score 7"]),
    ],
)
def test_labels_that_leave_a_score_without_meaning_are_a_remark(config, more, labels, remarks):
    for name, values, texts in zip(("train", "dev"), labels, ("ab", "cd"), strict=True):
        rows = [f"{text}\t{value}" for text, value in zip(texts, values, strict=True)]
        (Path(config.data) / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    task = TaskConfig(name="own", columns=["text"], **more)
    assert evaluate_remarks(replace(config, task=task)) == remarks


def evaluate_remarks(config):
    context = grid_search.prepare(config)
    return remarks_of(config, context.train, context.sets)


def test_the_first_rows_of_a_sorted_file_are_a_remark(config):
    path = Path(config.data) / "Toy" / "train.tsv"
    header, *rows = path.read_text().splitlines()
    some = replace(config, maximum_rows=170)
    assert not any("maximum_rows" in remark for remark in evaluate_remarks(some))
    rows = sorted(rows, key=lambda row: row.split("\t")[3])
    path.write_text("\n".join([header, *rows]) + "\n")
    (remark,) = [one for one in evaluate_remarks(some) if "maximum_rows" in one]
    assert "150 no, 20 yes" in remark
    assert not any("maximum_rows" in one for one in evaluate_remarks(config))


def test_f1_says_of_which_label_it_is_and_the_baseline_can_be_left_out(config):
    task = replace(TASK, labels=["yes", "no"], metrics=["f1"])
    found = run(replace(config, task=task, baseline=False))
    assert (found.figures["positive"], found.figures["baseline"], len(found.figures["runs"])) == ("no", None, 1)
    assert " f1 of no " in found.summary
    assert "random" not in found.summary
    assert run(replace(config, baseline=False)).figures["positive"] == "yes"


@pytest.mark.slow
def test_every_run_of_the_grid_is_accounted_for(config):
    wide = replace(config, batch_sizes=[16, 32], learning_rates=[1e-2, 1e-3], seeds=[0, 1], epochs=2)
    found = run(wide).figures
    assert len(found["runs"]) == 16
    assert all(len(r["epochs"]) == 2 for r in found["runs"])
    assert all(r["epochs"][-1]["scores"] == r["scores"] for r in found["runs"])
    pretrained = [r for r in found["runs"] if r["start"] == "pretrained"]
    assert found["best"] == max(r["scores"]["accuracy"] for r in pretrained)
    point = found["point"]
    there = [
        r["scores"]["accuracy"]
        for r in pretrained
        if (r["batch_size"], r["learning_rate"]) == (point["batch_size"], point["learning_rate"])
    ]
    assert found["score"] == pytest.approx(np.mean(there))
    assert found["deviation"] == pytest.approx(np.std(there, ddof=1))


def count_training(monkeypatch):
    """Seeds of the runs that are trained from now on."""
    seeds = []
    train = loop.train

    def counted(model, samples, recipe, *rest):
        seeds.append(recipe.seed)
        return train(model, samples, recipe, *rest)

    monkeypatch.setattr(loop, "train", counted)
    return seeds


def test_a_grid_that_was_cut_off_goes_on_and_ends_the_same(config, monkeypatch):
    config = replace(config, seeds=[0, 1])
    whole = run(config).files
    seeds = count_training(monkeypatch)
    (Path(config.out) / "manifest.json").unlink()
    (Path(config.out) / "runs" / "random-16-0.003-1.json").unlink()
    (Path(config.out) / "runs" / "random-16-0.003-0.json").write_bytes(b"\0")  # a disk that failed
    assert (run(config).files, seeds) == (whole, [0, 1])


@pytest.mark.slow
def test_a_grid_that_grew_keeps_its_runs_and_one_with_other_settings_does_not(config, monkeypatch):
    run(config)
    seeds = count_training(monkeypatch)
    grown = run(replace(config, seeds=[0, 7]))
    assert (seeds, len([name for name in grown.files if name.startswith("runs/")])) == ([7, 7], 4)
    run(replace(config, epochs=2))
    assert (seeds, len(list((Path(config.out) / "runs").iterdir()))) == ([7, 7, 0, 0], 2)


def test_malformed_rows_show_before_the_work(config, capsys):
    path = Path(config.data) / "Toy" / "train.tsv"
    path.write_text(path.read_text() + "300\ta\n301\n")
    manifest = run(config)
    assert (manifest.figures["malformed"], manifest.figures["rows"]) == (2, {"train": 300, "dev": 100})
    assert capsys.readouterr().out.startswith("toy: 2 malformed rows")
    assert "2 malformed rows" in manifest.summary
    assert "train.tsv, line 302: " in manifest.summary


@pytest.mark.slow
def test_scores_are_fitted_where_a_task_has_no_classes(config):
    task = replace(TASK, labels=[], metrics=["spearman", "pearson"])
    for name in ("train", "dev"):
        path = Path(config.data) / "Toy" / f"{name}.tsv"
        path.write_text(path.read_text().replace("\tyes\n", "\t2.5\n").replace("\tno\n", "\t1\n"))
    found = run(replace(config, task=task, epochs=10)).figures
    assert found["majority"] == 0
    assert found["score"] > 0.5


def test_a_model_is_tuned_as_far_as_it_has_learnt(config, tmp_path, model_folder):
    short = shutil.copytree(model_folder, tmp_path / "short")
    (short / "tokenizer_config.json").write_text('{"model_max_length": 10}')
    usual = replace(config, pretrained=str(short), sequence_length=None, baseline=False)
    for asked, length in ((usual, 10), (replace(usual, sequence_length=16), 13)):
        assert grid_search.prepare(asked).train.samples.lengths().max() == length
    assert grid_search.prepare(replace(usual, pretrained=str(model_folder))).config.longest == 40
    for asked, beyond in ((usual, False), (replace(usual, sequence_length=16), True)):
        said = " ".join(run(asked).figures["remarks"])
        assert ["beyond the 10 tokens" in said, "longer than 10 tokens" in said] == [beyond, not beyond]


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"pretrained": "nowhere"}, InputError, r"pipeline\.convert"),
        ({"data": "nowhere"}, InputError, r"Toy/train\.tsv"),
        ({"task": replace(TASK, dev="gone.tsv")}, InputError, r"Toy/gone\.tsv.*task\.dev_share=0\.1"),
        ({"sequence_length": 41}, ConfigError, "sequence_length=41: .*40 positions"),
        ({"task": examples.task_of("ax")}, ConfigError, "task=ax: "),
    ],
)
def test_what_is_not_there_is_told(config, change, kind, said):
    with pytest.raises(kind, match=said):
        run(replace(config, **change))


WRONG = "epochs=0 seeds=[] seeds=[1,1] batch_sizes=[0] threads=0 learning_rates=[0.0] maximum_rows=0 warmup_share=2"


@pytest.mark.parametrize("word", [*WRONG.split(), "weight_decay=-1", "part=[0,2]"])
def test_a_grid_that_cannot_be_is_refused(config, word):
    key, _, value = word.partition("=")
    with refused(ConfigError, key="force" if key == "part" else key):
        replace(config, force=key == "part", **{key: yaml.safe_load(value)})


@pytest.mark.slow
def test_runs_side_by_side_leave_the_same_bytes(config):
    config = replace(config, seeds=[0, 1], threads=1)  # a sum's order is that of its threads
    one = run(config).files
    two = run(replace(config, processes=2, force=True)).files
    assert two == one


@pytest.mark.slow
def test_the_best_model_is_kept_and_a_start_for_another_task(config, tmp_path):
    config = replace(config, seeds=[0, 1], epochs=3, baseline=False)
    found = run(config).figures
    kept = replace(config, keep=True)
    assert run(kept).figures == found  # only the best was trained once more
    folder = Path(config.out) / "model"
    theirs = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    opened = saved_model.load(folder)[1]
    assert opened.texts == 2
    card = (folder / "README.md").read_text()
    header = yaml.safe_load(card.split("---")[1])
    assert header["pipeline_tag"] == "text-classification"
    assert f"| dev accuracy | {found['best']:.4f} |" in card
    read = (config.sequence_length, config.truncation, config.stride)
    assert opened.reading == saved_model.Reading(*read)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = (Path(config.data) / "Toy" / "dev.tsv").read_text().splitlines()[1:]
    pairs = [row.split("\t")[1:3] for row in rows]
    batch = tokenizer([a for a, _ in pairs], [b for _, b in pairs], padding=True, return_tensors="pt")
    with torch.no_grad():
        answers = theirs(**batch).logits.argmax(-1)
    words = [theirs.config.id2label[int(answer)] for answer in answers]
    lines = (Path(config.out) / "predictions.tsv").read_text().splitlines()[1:]
    assert words == [line.split("\t")[1] for line in lines]
    assert [p.name for p in (Path(config.out) / "runs").iterdir() if p.is_dir()]
    after = run(replace(config, pretrained=str(folder), out=str(tmp_path / "second"), epochs=1))
    assert after.figures["score"] >= found["score"] - 0.1  # it goes on from what was learnt


@pytest.mark.slow
def test_a_kept_classifier_goes_on_by_the_names_of_its_classes(config, tmp_path):
    """Before any learning it is as good as it was, whatever the order of the labels."""
    first = run(replace(config, epochs=6, keep=True, baseline=False)).figures["score"]
    task = replace(config.task, labels=["YES", "NO"])
    for path in (Path(config.data) / "Toy").iterdir():
        path.write_text(path.read_text().replace("\tyes\n", "\tYES\n").replace("\tno\n", "\tNO\n"))
    kept, out = str(Path(config.out) / "model"), str(tmp_path / "second")
    still = replace(config, task=task, out=out, pretrained=kept, baseline=False, learning_rates=[1e-30])
    found = run(still).figures["score"]
    assert found == pytest.approx(first)
    assert first > 0.8


@pytest.mark.slow
def test_a_modern_encoder_learns_and_is_kept_like_bert(config, modern_folder, tmp_path):
    modern = replace(config, pretrained=str(modern_folder))
    assert run(replace(modern, epochs=10, baseline=False)).figures["score"] > 0.8
    test_the_best_model_is_kept_and_a_start_for_another_task(replace(modern, out=str(tmp_path / "kept")), tmp_path)


def test_of_equal_runs_the_first_of_the_grid_is_the_best_whichever_ended_first(config, tmp_path):
    runs = [grid_search.Trial(start, 16, 1e-3, seed) for start in ("random", "pretrained") for seed in (2, 1)]
    done = {run: {"scores": {"accuracy": 0.5}} for run in reversed(runs)}
    assert grid_search.only_best(config, tmp_path, runs, done) == grid_search.Trial("pretrained", 16, 1e-3, 2)
    done[runs[3]] = {"scores": {"accuracy": 0.6}}
    assert grid_search.only_best(config, tmp_path, runs, done) == runs[3]
    assert grid_search.only_best(config, tmp_path, runs, {runs[0]: {"scores": {"accuracy": 1.0}}}) is None


def test_a_point_that_diverges_neither_counts_nor_is_kept(config):
    config = replace(config, baseline=False, keep=True)
    alone = run(config)
    both = run(replace(config, learning_rates=[1e30, 3e-3], force=True))
    assert both.figures["score"] == alone.figures["score"]
    assert both.figures["point"]["learning_rate"] == 3e-3
    assert [one["learning_rate"] for one in both.figures["runs"]] == [3e-3]
    remark = both.figures["remarks"][-1]
    assert remark.startswith("1 of 2 runs do not count")
    assert remark in both.summary
    assert "pretrained-16-1e+30-0" in remark
    weights = "model/model.safetensors"
    assert both.files[weights] == alone.files[weights]
    with refused(Diverged, "not finite", key="learning_rates", value="[1e+30, 1e+29]"):
        run(replace(config, learning_rates=[1e30, 1e29], force=True))


@pytest.mark.parametrize(
    "change",
    [
        {"encoder": "frozen", "layers": [0, -1], "mix": mix, "pooling": pooling}
        for mix, pooling in (("concat", "cls"), ("mean", "mean"), ("weighted", "max"))
    ]
    + [{"truncation": "chunks", "chunk_pooling": kind, "sequence_length": 8} for kind in ("mean", "max", "attention")]
    + [{"truncation": "head_tail"}],
    ids=str,
)
def test_every_protocol_runs(config, change):
    found = run(replace(config, baseline=False, maximum_rows=40, **change)).figures
    assert 0 <= found["score"] <= 1


def test_a_run_that_scores_less_when_its_model_is_made_leaves_another_to_keep(config):
    config = replace(config, baseline=False, seeds=[0, 1], maximum_rows=8, epochs=1)
    run(config)
    first, second = sorted((Path(config.out) / "runs").glob("*.json"))
    for path, score in ((first, 3.0), (second, 2.0)):  # as on a device whose sums vary
        record = json.loads(path.read_text())
        record["scores"]["accuracy"] = score
        path.write_text(json.dumps(record))
    found = run(replace(config, keep=True)).figures
    assert found["best"] <= 1
    assert (Path(config.out) / "model" / "model.safetensors").is_file()
    assert [path.name for path in (Path(config.out) / "runs").glob("*") if path.is_dir()] in (
        [[first.stem], [second.stem]]
    )


def test_a_fault_of_a_file_that_is_split_is_counted_once(config):
    train = Path(config.data) / "Toy" / "train.tsv"
    train.write_text(train.read_text() + "alone\n")
    task = replace(config.task, dev="train.tsv", dev_share=0.3)
    found = run(replace(config, task=task, baseline=False)).figures
    assert found["malformed"] == len(found["faults"]) == 1


def test_a_model_is_scored_on_other_tasks_sets_too(config):
    rows = (Path(config.data) / "Toy" / "dev.tsv").read_text()
    mnli = Path(config.data) / "MNLI"
    mnli.mkdir()
    text = rows.replace("\tyes\n", "\tneutral\n").replace("\tno\n", "\tentailment\n")
    for name in ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv", "test_matched.tsv"):
        (mnli / name).write_text(text.replace("label", "gold_label"))
    task = examples.task_of("mnli")
    found = run(replace(config, task=task, submit=True)).figures
    assert list(found["also"]) == ["test_matched.tsv", "mnli_mm"]  # the diagnostic is not here
    assert found["also"]["mnli_mm"]["rows"] == found["rows"]
    assert found["also"]["mnli_mm"]["score"] == pytest.approx(found["score"])
    assert found["also"]["mnli_mm"]["baseline"] == pytest.approx(found["baseline"])
    assert found["submission"] == ["MNLI-m"]
    answers = (Path(config.out) / "submission" / "MNLI-m.tsv").read_text()
    dev = (Path(config.out) / "predictions.tsv").read_text().splitlines()
    assert answers.splitlines() == ["\t".join(row.split("\t")[:2]) for row in dev]


def command(*arguments):
    return forked.module("pipeline.evaluate", *arguments)


def test_the_command_evaluates_and_then_is_up_to_date(config):
    (Path(config.data) / "Toy").rename(Path(config.data) / "Sample-Next")
    for name in ("train", "dev"):
        path = Path(config.data) / "Sample-Next" / f"{name}.tsv"
        path.write_text(path.read_text().replace("\tyes\n", "\t1\n").replace("\tno\n", "\t0\n"))
    arguments = shlex.split(
        f"+task=sample_next workdir={config.workdir} pretrained={config.pretrained} epochs=1 "
        "sequence_length=16 threads=1"
    )
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    assert "Sample-Next" in done.stdout
    assert (Path(config.workdir) / "evaluate-sample_next" / "results.json").exists()
    (Path(config.workdir) / "report").mkdir()
    (Path(config.workdir) / "report" / "report.html").touch()
    again = command(*arguments).stdout
    assert "evaluate: up to date" in again
    assert f"pipeline.report workdir={config.workdir}" in again


def evaluate_own(*words, task="own"):
    return forked.fresh("-X", "importtime", "-m", "pipeline.evaluate", f"task={task}", *words)


def test_a_mistake_in_a_tasks_files_does_not_wait_for_pytorch(model_folder, tmp_path):
    (tmp_path / "train.tsv").write_text("text\tlabel\nabc\t0\n")
    place = [f"data={tmp_path}", f"out={tmp_path / 'out'}", f"pretrained={model_folder}"]
    done = evaluate_own(*place, "task.columns=[nope]")
    assert done.returncode == 2
    assert "train.tsv, line 1: column 'nope'" in done.stderr
    assert not [line for line in done.stderr.splitlines() if line.endswith(" torch")]


@pytest.mark.slow
def test_a_task_of_ones_own_asks_which_model(tmp_path):
    words = [f"data={tmp_path}", f"out={tmp_path / 'out'}"]
    done = evaluate_own(*words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: pretrained: ")
    done = evaluate_own(*words, f"workdir={tmp_path}")
    assert f"{tmp_path}/convert: " in done.stderr
