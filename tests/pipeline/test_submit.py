"""Submission files: what the GLUE server takes, and what is refused."""

import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import submit
from pipeline.config import SubmitConfig
from pipeline.errors import InputError
from pipeline.evaluation import answers, examples
from pipeline.stages import stage
from tests.support import finished, forked
from tests.support.refusals import refused

# Names and sizes of the test sets: Wang et al. 2018, table 1, and the server's own sample.
SIZES = (
    "CoLA=1063 SST-2=1821 MRPC=1725 STS-B=1379 QQP=390965 MNLI-m=9796 MNLI-mm=9847 QNLI=5463 RTE=3000 WNLI=146 AX=1104"
)
OFFICIAL = {name: int(rows) for name, rows in (pair.split("=") for pair in SIZES.split())}


def test_the_files_are_the_servers():
    assert {name: task.test_rows for name, task in answers.server_tasks().items()} == OFFICIAL


def test_rows_are_words_or_scores_within_the_range():
    assert answers.rows(examples.task_of("rte"), [1, 0]) == ("index\tprediction\n0\tnot_entailment\n1\tentailment\n")
    assert answers.submission_rows(examples.task_of("stsb"), [5.2, -0.1, 3.14159]) == (
        "index\tprediction\n0\t5.000\n1\t0.000\n2\t3.142\n"
    )


@pytest.mark.parametrize("name", ["stsb", "own"])
def test_scores_are_written_as_predicted_outside_a_file_for_the_server(name):
    task = replace(examples.task_of(name), labels=[], metrics=["pearson"])
    scores = "index\tprediction\n0\t87.250000\n1\t-3.141593\n2\t0.000012\n"
    assert answers.rows(task, [87.25, -3.141593, 0.000012]) == scores
    own = replace(task, submission="Mine", test="test.tsv")
    assert answers.submission_rows(own, [87.25, -3.141593, 0.000012]) == scores


@pytest.fixture
def config(tmp_path):
    """Two evaluations that left answers."""
    for task in ("rte", "wnli"):
        folder = tmp_path / f"evaluate-{task}" / answers.FOLDER
        folder.mkdir(parents=True)
        finished.manifest("evaluate").write(folder.parent)
        one = examples.task_of(task)
        (folder / f"{one.submission}.tsv").write_text(submit.constant_rows(one))
    places = [str(tmp_path / f"evaluate-{task}") for task in ("rte", "wnli")]
    return SubmitConfig(workdir=str(tmp_path), out=str(tmp_path / "submit"), fill=True, evaluations=places)


@pytest.mark.slow
def test_a_filled_submission_has_every_file_whole_and_equal_bytes(config):
    made = stage.run("submit", config, submit.make)
    assert made.figures["filled"] == sorted(set(OFFICIAL) - {"RTE", "WNLI"}, key=list(answers.server_tasks()).index)
    with zipfile.ZipFile(Path(config.out) / submit.ARCHIVE) as archive:
        assert {name.removesuffix(".tsv") for name in archive.namelist()} == set(OFFICIAL)
        counts = {name.removesuffix(".tsv"): archive.read(name).count(b"\n") - 1 for name in archive.namelist()}
    assert counts == OFFICIAL
    again = stage.run("submit", replace(config, force=True), submit.make)
    assert again.files == made.files


def test_answers_to_another_test_set_than_the_servers_are_refused(config):
    path = Path(config.evaluations[0]) / answers.FOLDER / "RTE.tsv"
    path.write_text(path.read_text().removesuffix("2999\tentailment\n"))
    with refused(InputError, r"2,999 rows.* 3,000", path=str(path)):
        stage.run("submit", config, submit.make)
    assert not Path(config.out).exists()


def test_a_file_that_is_of_no_task_of_the_server_is_refused(config):
    (Path(config.evaluations[0]) / answers.FOLDER / "Own.tsv").write_text("index\t0\n")
    with pytest.raises(InputError, match=r"Own\.tsv"):
        stage.run("submit", config, submit.make)


def test_missing_answers_are_named_unless_they_shall_be_filled(config):
    with refused(InputError, "AX, CoLA, ", key="fill") as error:
        stage.run("submit", replace(config, fill=False), submit.make)
    # An evaluation of mnli answers AX and MNLI-mm too.
    assert "; evaluate cola, mnli, mrpc, qnli, qqp, sst2, stsb with " in str(error.value)
    with refused(InputError, "GLUE with submit=true", value=config.workdir):
        stage.run("submit", replace(config, evaluations=[]), submit.make)


def test_the_command_finds_the_evaluations_of_a_run(config):
    command = [sys.executable, "-m", "pipeline.submit", f"workdir={config.workdir}", "fill=true"]
    done = forked.run(command)
    assert done.returncode == 0, done.stderr
    assert "2 tasks answered" in done.stdout
