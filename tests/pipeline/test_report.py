"""The report is one page that shows what the manifests say, and reaches for nothing else."""

import json
import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from model.tracking.metrics_file import METRICS
from pipeline import report
from pipeline.config import ReportConfig
from pipeline.errors import ConfigError, InputError
from pipeline.records import run_file
from pipeline.records.manifest import MANIFEST
from pipeline.reporting import graph_svg, score_tables
from pipeline.reporting.score_tables import Made
from pipeline.stages import stage
from tests.support import finished
from tests.support.refusals import refused


def manifest(folder, stage, fingerprint, inputs, /, **figures):
    folder.mkdir(parents=True)
    marks = {"fingerprint": fingerprint * 64, "inputs": {key: value * 64 for key, value in inputs.items()}}
    finished.manifest(stage, figures=figures, summary=f"summary of {stage}", **marks).write(folder)


def write_run(folder):
    """Write a run with a hostile task name."""
    manifest(folder / "vocab", "vocab", "a", {})
    counts = {"documents": {"read": 1234, "written": 1200}, "totals": {"tokens": 56789, "train": 50}}
    counts |= {"skipped": {"redirect": 7}, "lengths": {"20": 3, "64": 9}}
    manifest(folder / "prepare", "prepare", "b", {"vocab": "a"}, **counts)
    trained(folder / "train", "c", 0.1934)
    rows = [{"kind": "train", "step": step, "masked_lm_loss": 9 - step, "tokens_per_second": 5} for step in (1, 2, 3)]
    (folder / "train" / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = {"title": "<script>alert(1)</script>", "sample": True, "baseline": 0.5182}
    score_of(folder, "x", 0.7251, {"pretrained": "c"}, **more, rows={"train": 4000, "dev": 1000})
    return folder


def trained(folder, fingerprint, accuracy):
    """Write a training of those shards."""
    held_out = {"most_frequent_accuracy": 0.0593, "validation": {"masked_lm_accuracy": accuracy}}
    manifest(folder, "train", fingerprint, {"data.dir": "b"}, **held_out)


def score_of(folder, task, score, inputs=None, /, **more):
    """Write an evaluation of a task, which is one of GLUE unless more is said."""
    usual = {"task": task, "title": task, "sample": False, "metric": "accuracy", "baseline": 0.5, "majority": 0.5}
    figures = usual | {"score": score, "rows": {"train": 1, "dev": 1}} | more
    manifest(folder / f"evaluate-{task}", "evaluate", "e", inputs or {}, **figures)


def change(folder, **fields):
    """Give a manifest other fields."""
    place = folder / MANIFEST
    place.write_text(json.dumps(json.loads(place.read_text()) | fields))


def page(work, out="report"):
    config = ReportConfig(workdir=str(work), out=str(work / out))
    report.run(config)
    return (work / out / "report.html").read_text()


@pytest.fixture
def work(tmp_path):
    """A run that a test may change."""
    return write_run(tmp_path / "work")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The page of that run as it is."""
    return page(write_run(tmp_path_factory.mktemp("run") / "work"))


def test_the_figures_stand_on_the_page_and_what_others_named_is_text(text):
    for shown in ("1,200", "56,789", "0.193", "0.059", "0.725", "0.518", "sample task", "redirect"):
        assert shown in text
    assert "&lt;script&gt;alert(1)" in text
    (documents,) = re.findall(r'<div class="card">(documents.*?)</div>', text, re.DOTALL)
    assert "<b>1,200</b>" in documents
    assert "1,241" in documents, "what they are of, with those that were skipped"


def test_where_the_time_of_prepare_went_is_drawn_with_its_waits(work):
    assert "time of the workers" not in page(work), "of an earlier release"
    change(work / "prepare", spent={"read": [1.5, 0.2], "tokenize": [3.0, 0.0]})
    (drawn,) = (part for part in page(work, "again").split("<figure>") if "time of the workers" in part)
    for shown in (">read  1.5<", ">tokenize  3<", ">processor<", ">waiting<", ">seconds<"):
        assert shown in drawn


def test_the_text_and_the_rows_that_a_score_is_of_are_named(work):
    change(work / "prepare", config={"corpus": {"name": "viwiki", "language": "vi", "path": "/a/caf\udce9.bz2"}})
    text = page(work)
    for shown in ("viwiki", '<td>language<td class="n">vi<', r"caf\udce9.bz2", "dev rows", "1,000"):
        assert shown in text


def test_the_page_reaches_for_nothing(text):
    text = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert not re.search(r'(src|href)="(?!#)', text)
    assert not re.search(r"url\((?!#)", text)
    assert "<script" not in text


def test_a_held_out_loss_that_rises_is_a_warning(work):
    for rise, warned in ((0.2, True), (0.01, False), (-0.1, False)):
        rows = []
        for step in (10, 20, 30, 40):
            loss = 0.7 - step / 100
            rows.append({"kind": "train", "step": step, "next_sentence_loss": loss})
            held = 0.6 if step == 10 else 0.6 + rise * step / 40
            rows.append({"kind": "validation", "step": step, "next_sentence_loss": held})
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (work / "train" / METRICS).write_text(text)
        text = page(work, f"report-{rise}")
        assert bool(re.search(r'class="banner">.*rose from 0\.600 .*0\.800', text)) == warned


def test_what_was_made_from_other_shards_is_a_warning(work):
    """As after a takedown: the counts are new, the model is not."""
    assert "train: data.dir" not in page(work)
    config = {"workdir": "s3://bucket/run", "data": {"dir": "s3://bucket/run/prepare"}}
    for mark, same in (("b" * 64, True), ("before", False)):
        change(work / "train", config=config, inputs={"data.dir": mark})
        text = page(work, f"report-{same}")
        assert bool(re.search('class="banner">.*train: data.dir was another', text)) != same
        said = json.loads((work / f"report-{same}" / MANIFEST).read_text())["summary"]
        assert ("; warning: train: data.dir was another" in said) != same


def test_errors_of_a_task_are_shown_by_class(work):
    confusion = {"good": {"good": 41, "bad": 3}, "bad": {"good": 5, "bad": 51}}
    wrong = [{"texts": ["so <i>so</i>", "indeed"], "label": "good", "answer": "bad"}]
    score_of(work, "y", 0.9, {"pretrained": "c"}, confusion=confusion, wrong=wrong)
    (shown,) = re.findall(r"<summary>y: answers by class.*?</details>", page(work), re.DOTALL)
    assert re.findall(r"<td class=\"n\">(?:<b>)?(\d+)", shown) == ["41", "3", "5", "51"]
    assert "so &lt;i&gt;so&lt;/i&gt; | indeed<td>good<td" in shown


def test_the_page_says_how_its_models_are_used(work):
    manifest(work / "convert", "convert", "d", {"train": "c"}, model="bert")
    (work / "evaluate-x" / "model").mkdir()
    (work / "evaluate-x" / "model" / "config.json").write_text("{}")
    change(work / "evaluate-x", files={"model/config.json": {"bytes": 2, "sha256": "0" * 64}})
    text = page(work)
    assert f"pipeline(&#39;fill-mask&#39;, &#39;{work / 'convert'}&#39;)" in text
    assert f"pipeline.predict pretrained={work / 'evaluate-x' / 'model'} input=FILE" in text


def test_every_plot_is_well_formed_and_takes_the_colour_of_the_page_and_small_curves_are_folded(text):
    found = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(found) >= 4
    for plot in found:
        ET.fromstring(plot)
    assert any("currentColor" in plot for plot in found)
    (graph,) = (plot for plot in found if 'class="dag"' in plot)
    assert (graph.count("<path"), graph.count("<rect")) == (3, 4), "an arrow for each input"
    (folded, *_) = re.findall(r"<details>.*?</details>", text, flags=re.DOTALL)
    assert "Throughput" in folded
    assert "Masked-LM loss" not in folded


def test_a_run_without_training_has_a_report(work):
    for name in ("train", "evaluate-x"):
        (work / name / "manifest.json").unlink()
    assert "1,200" in page(work)


@pytest.mark.parametrize(("architecture", "name"), [("bert", "BERT"), ("modernbert", "ModernBERT"), ("neo", "neo")])
def test_the_title_names_the_architecture(architecture, name):
    train = finished.manifest("train", config={"model": {"architecture": architecture}})
    assert report.title_of([train], Path("work/x")) == f"{name} pre-training: x"
    assert report.title_of([], Path("work/x")) == "Pre-training: x"


def test_what_a_crash_left_is_not_reported(work):
    (work / "prepare").rename(work / ".prepare.old")
    assert "prepare" not in report.stages_of(ReportConfig(workdir=str(work), out="x"))
    assert ".prepare.old" not in report.stages_of(ReportConfig(workdir=str(work), out="x"))


def test_scores_stand_beside_published_ones_with_both_averages(work):
    also = {
        "mnli_mm": {"metric": "accuracy", "score": 0.6, "baseline": 0.4},
        "ax": {"metric": "matthews", "score": 0.1, "baseline": None},
    }
    score_of(work, "mnli", 0.7, also=also)
    for task in ("qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte"):
        score_of(work, task, 0.8)
    score_of(work, "wnli", 0.5)
    text = page(work)
    rows = json.loads((work / "report" / "scores.json").read_text())
    ours, random, *others = rows
    assert ours["average"] == pytest.approx((70 + 60 + 7 * 80) / 9)
    assert ours["with_wnli"] == pytest.approx((70 + 60 + 7 * 80 + 50) / 10)
    assert ours["scores"]["ax"] == pytest.approx(10)
    assert random["scores"]["mnli_mm"] == pytest.approx(40)
    assert "ax" not in random["scores"]
    averages = {row["name"]: round(row["average"], 1) for row in others}
    assert (averages["BERT-large"], averages["BERT-base"]) == (82.1, 79.6)
    for shown in ("Comparison with published models", "Devlin et al. 2019, table 1", "76.7", "79.6"):
        assert shown in text
    assert "| pre-trained | 70.0 | 60.0 |" in (work / "report" / "scores.md").read_text()


def score_at(work, task, name, config, **figures):
    """Write a converted checkpoint and a score of it."""
    manifest(work / f"convert-{name}", "convert", "f", {}, **figures)
    change(work / f"convert-{name}", config=config)
    score_of(work, f"{task}-{name}", 0.6)
    place = {"pretrained": str(work / f"convert-{name}")}
    configure(work / f"evaluate-{task}-{name}", place, task=task, title=task.upper())


def test_checkpoints_of_two_trainings_are_two_curves(work):
    for train, step in (("train", 100), ("train", 200), ("train-512", 50), ("train-512", 80)):
        score_at(work, "rte", f"{train}-{step}", {"train": str(work / train)}, step=step)
    assert page(work).count("RTE over checkpoints") == 2


def test_checkpoints_may_have_been_converted_one_by_one_or_together(work):
    trained = work / "train" / "checkpoints" / "4f78b391e481"
    for step in (100, 200):
        score_at(work, "rte", str(step), {"train": str(trained / f"step-{step:08d}")}, step=step)
    both, steps = work / "convert-checkpoints", {"chck_1M": {"step": 10}, "chck_2M": {"step": 20}}
    for name in steps:
        (both / name).mkdir(parents=True)
        (both / name / "config.json").write_text("{}")
    files = {f"{name}/config.json": {"bytes": 2} for name in steps}
    config = {"train": str(work / "other")}
    finished.manifest("convert", config=config, files=files, figures={"checkpoints": steps}).write(both)
    for name in steps:
        score_of(work, f"wnli-{name}", 0.6)
        place = {"pretrained": str(both / name)}
        configure(work / f"evaluate-wnli-{name}", place, task="wnli", title="WNLI")
    text = page(work)
    assert text.count("RTE over checkpoints") == text.count("WNLI over checkpoints") == 1


def test_folders_that_are_named_have_finished_stages_of_different_names(work, tmp_path):
    manifest(tmp_path / "other" / "train", "train", "c", {}, validation={})
    (tmp_path / "text").mkdir()
    for name, error in (("other/train", ConfigError), ("nope", InputError), ("text", InputError)):
        stages = [str(work / "train"), str(tmp_path / name)]
        with refused(error, stages[1], key="stages"):
            report.run(ReportConfig(workdir=str(work), out=str(work / "report"), stages=stages))
    with refused(InputError, value=str(tmp_path)):
        stage.run("report", ReportConfig(workdir=str(tmp_path), out=str(tmp_path / "report")), report.make)


def configure(folder, config, **figures):
    """Give a manifest a configuration, and more figures."""
    change(folder, config=config, figures=json.loads((folder / MANIFEST).read_text())["figures"] | figures)


def test_each_task_has_a_card_with_its_baselines_and_chance_is_called_that(work):
    score_of(work, "rte", 0.5)
    text = page(work)
    card = next(part for part in text.split('<div class="card">') if part.startswith("rte "))
    assert "<b>0.500</b>" in card
    assert card.count("0.500") == 3
    assert "at chance" in card
    first = next(part for part in text.split('<div class="card">') if "masked-LM" in part)
    assert "0.193" in first
    assert "baseline 0.059" in first


def test_samples_and_the_command_of_the_run_are_on_the_page(work):
    assert "model fills in" not in page(work)
    sample = {"text": "a [MASK] <b>", "masks": [[{"word": "cat", "probability": 0.2512}]]}
    manifest(work / "convert", "convert", "g", {}, samples=[sample])
    record = {"version": run_file.VERSION, "command": "python -m pipeline.run corpus=x", "stages": {}}
    (work / run_file.NAME).write_text(json.dumps(record))
    text = page(work)
    assert "a [MASK] &lt;b&gt;" in text
    assert "<b>cat</b>" in text
    assert "0.25" in text
    assert "python -m pipeline.run corpus=x</pre>" in text


def test_a_stage_that_was_made_again_stays_left_of_its_readers():
    stages = {
        name: Made(Path(name), finished.manifest(name, fingerprint=name, inputs=inputs, finished=when), None)
        for name, inputs, when in (
            ("evaluate", {"pretrained": "convert"}, "1"),
            ("convert", {"train": "train"}, "2"),
            ("train", {}, "3"),
        )
    }
    columns = graph_svg.columns(graph_svg.needs_of(stages))
    assert columns == {"train": 0, "convert": 1, "evaluate": 2}


def test_a_page_is_made_again_when_one_more_stage_is_there_and_sets_scored_too_have_rows(work):
    assert "MNLI-mm" not in (before := page(work))
    assert "Comparison with published models" not in before, "without GLUE nothing is compared"
    assert not (work / "report" / "scores.json").exists()
    also = {"mnli_mm": {"title": "MNLI-mm", "metric": "accuracy", "score": 0.61, "baseline": 0.4}}
    score_of(work, "mnli", 0.7, also=also)
    assert re.search(r"MNLI-mm.*?0\.610", page(work), flags=re.DOTALL)


def pairs_figures(**changes):
    """The figures of an evaluation on two paradigms of BLiMP."""
    mean = {"accuracy": 0.6, "interval": [0.1, 0.9], "pairs": 10}
    paradigms = {"adjunct_island": 0.4, "wh_island": 0.8}
    tables = {"macro": mean, "micro": mean, "categories": {}, "phenomena": {"island_effects": mean}}
    tables["paradigms"] = {n: mean | {"accuracy": a, "phenomenon": "island_effects"} for n, a in paradigms.items()}
    names = {"task": "blimp", "title": "BLiMP", "kind": "minimal_pairs", "metric": "accuracy", "method": "pll"}
    scores = {"score": 0.6, "scores": {"macro": 0.6, "micro": 0.6}, "majority": 0.5, "rows": {"train": 0, "dev": 20}}
    model = {"sample": False, "ties": 3, "tables": tables, "model": "convert", "baseline": 0.25}
    return {**names, **scores, **model, "baseline_tables": tables, **changes}


def test_minimal_pairs_have_a_table_next_to_published_models(work):
    manifest(work / "evaluate-blimp", "evaluate", "e", {"pretrained": "c"}, **pairs_figures())
    text = page(work)
    found = re.search(r"<tr[^>]*><td[^>]*>island effects<td.*?</tr>", text, re.S)
    row = re.sub(r"<[^>]+>", " ", found[0]).split()
    assert row[:8] == ["island", "effects", "10", "60.0", "10.0", "to", "90.0", "60.0"]
    # The means over these two paradigms of people and GPT-2 in the published table.
    assert row[8:10] == [f"{(94.0 + 73.0) / 2:.1f}", f"{(89.4 + 78.9) / 2:.1f}"]
    assert "3 ties" in text
    assert "BLiMP" not in re.findall(r"Scores on dev sets.*?</table>", text, re.S)[0]


def test_scores_over_seeds_have_mean_and_deviation(work):
    assert "seeds of pre-training" not in page(work)
    for seed, accuracy, score in ((1, 0.2, 0.8), (7, 0.21, 0.9)):
        trained(work / f"train-seed{seed}", str(seed), accuracy)
        more = {"task": "x", "title": "X", "sample": True, "baseline": None}
        score_of(work, f"x-seed{seed}", score, {"pretrained": "c"}, **more, rows={"train": 4000, "dev": 1000})
        manifest(work / f"evaluate-blimp-seed{seed}", "evaluate", "9", {}, **pairs_figures(score=score))
    text = page(work)
    assert "Scores over 3 seeds of pre-training" in text
    known = json.loads((work / "report" / "seeds.json").read_text())
    found = known["held-out masked-LM accuracy (train)"]
    assert (found["seeds"], found["mean"]) == ({"0": 0.1934, "1": 0.2, "7": 0.21}, pytest.approx(0.2011333))
    assert found["deviation"] == pytest.approx(0.0083578, abs=1e-6)
    assert known["BLiMP, mean of paradigms"]["seeds"] == {"1": 0.8, "7": 0.9}
    assert known["BLiMP, island effects"]["deviation"] == 0
    # One row per task, with the mean, and the baseline that one of the seeds has.
    table = text.split("Scores on dev sets")[1].split("</table>")[0]
    (row,) = re.findall(r"alert\(1\).*?</tr>", table, re.S)
    for shown in ("0.808 ± 0.088", "0.518"):
        assert shown in row
    assert "<b>0.201 ± 0.008</b>" in text
    # The seeds in any order.
    stages = [str(work / name) for name in ("evaluate-x-seed7", "evaluate-x", "evaluate-x-seed1")]
    report.run(ReportConfig(workdir=str(work), out=str(work / "again"), stages=stages))
    assert "0.518" in (work / "again" / "report.html").read_text()


def write_seeds(top, name, losses):
    """Write a run of as many seeds, each with its held-out losses by step."""
    for seed, values in enumerate(losses):
        folder = top / name / f"train{f'-seed{seed}' * bool(seed)}"
        manifest(folder, "train", str(seed), {}, validation={"masked_lm_loss": values[-1]})
        rows = [{"kind": "validation", "step": step, "masked_lm_loss": loss} for step, loss in enumerate(values)]
        (folder / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
        change(folder, config={"seed": seed, "optimizer": {"learning_rate": len(losses)}, "workdir": str(top / name)})
    return str(top / name)


def test_runs_stand_side_by_side_with_means_and_deviations_over_their_seeds(tmp_path):
    runs = [write_seeds(tmp_path, "a", [[3.0, 1.0], [3.0, 2.0]]), write_seeds(tmp_path, "b", [[4.0, 3.0]])]
    report.run(ReportConfig(runs=runs, workdir=str(tmp_path), out=str(tmp_path / "both")))
    scores, trained, settings = json.loads((tmp_path / "both" / "runs.json").read_text())
    assert scores["runs"] == ["a", "b"]
    assert scores["rows"] == {"held-out masked-LM loss (train)": ["1.500 ± 0.707 (seeds: 2)", "3.000"]}
    assert settings["rows"] == {"train.optimizer.learning_rate": ["2", "1"]}
    assert "tokens seen (train)" in trained["rows"]
    assert (tmp_path / "both" / "figures" / "masked-lm-loss-held-out.png").read_bytes().startswith(b"\x89PNG")


def test_a_curve_over_seeds_is_their_mean_at_common_steps():
    logs = [
        [{"kind": "train", "step": step, "x": x} for step, x in log] for log in ([(1, 2), (2, 3)], [(1, 4), (9, 1)])
    ]
    assert score_tables.mean_curve(logs, "train", "x") == ([1], [3], [pytest.approx(2**0.5)])


@pytest.mark.parametrize(
    ("tokenizers", "shares", "said"), [("ab", (0.1, 0.1), 1), ("aa", (0.1, 0.2), 3), ("aa", (1, 1), 0)]
)
def test_figures_of_other_tokens_or_documents_are_not_compared_in_silence(tmp_path, tokenizers, shares, said):
    runs = [str(tmp_path / name) for name in "xy"]
    for run, tokenizer, share in zip(runs, tokenizers, shares, strict=True):
        manifest(Path(run) / "prepare", "prepare", "p", {}, tokenizer=tokenizer, lengths={"5": 1})
        change(Path(run) / "prepare", config={"validation_share": share, "corpus": {}})
        manifest(Path(run) / "evaluate-own", "evaluate", "e", {}, task="own", rows={"dev": 100 * share})
        found = {"kind": "retrieval", "rows": {"dev": 9}, "systems": {"BM25": {"scores": {"ndcg@10": share}}}}
        manifest(Path(run) / "evaluate-retrieval", "evaluate", "r", {}, task="retrieval", **found)
    report.run(ReportConfig(runs=runs, workdir=str(tmp_path), out=str(tmp_path / "both")))
    assert (tmp_path / "both" / "report.html").read_text().count('class="banner"') == said


def test_several_runs_need_a_folder_of_their_own_and_finished_stages(tmp_path, work):
    with refused(ConfigError, key="out"):
        ReportConfig(runs=["a", "b"], workdir="w", out="w/report")
    with refused(ConfigError, "twice", key="runs"):
        ReportConfig(runs=["a", "a/"], workdir="w", out="o")
    with refused(InputError, key="runs", value=str(tmp_path / "none")):
        report.run(ReportConfig(runs=[str(work), str(tmp_path / "none")], workdir="w", out=str(tmp_path / "out")))
    with refused(ConfigError, key="runs"):
        report.run(ReportConfig(runs=[str(work)], stages=[str(work / "train")], workdir="w", out=str(tmp_path / "out")))


def test_every_figure_of_the_page_is_there_as_files(work, text, capsys):
    page(work)
    shown = text.count("<figcaption>")
    for form in ("svg", "png"):
        assert len([*(work / "report" / "figures").glob(f"*.{form}")]) == shown >= 4
    for file in (work / "report" / "figures").glob("*.svg"):
        ET.parse(file)
    made = json.loads((work / "report" / MANIFEST).read_text())["files"]
    change(work / "report", files={name: one for name, one in made.items() if not name.startswith("figures/")})
    shutil.rmtree(work / "report" / "figures")
    capsys.readouterr()
    for again in (False, True):  # earlier code drew them into the page alone
        page(work)
        assert list((work / "report" / "figures").glob("*.svg"))
        assert ("up to date" in capsys.readouterr().out) == again
