"""Commands about a whole run find the stages of one in an object store."""

from pathlib import Path

import pytest

from pipeline import report, submit
from pipeline.config import ReportConfig, SubmitConfig
from pipeline.errors import InputError
from pipeline.evaluation import answers
from pipeline.records.manifest import Manifest, file_checksums
from tests.support import finished, objects
from tests.support.refusals import refused

pytestmark = pytest.mark.store


def put(bucket, folder, stage, **figures):
    """Put the folder of a finished stage; return its address."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"fingerprint": folder.name[0] * 64, "files": file_checksums(folder, {}), "figures": figures}
    finished.manifest(stage, summary=f"summary of {stage}", **about).write(folder)
    address = f"{bucket}/run/{folder.name}"
    for path in filter(Path.is_file, folder.rglob("*")):
        objects.put(f"{address}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return address


def test_a_report_is_of_all_stages_in_the_store(bucket, tmp_path, capsys):
    out = f"{bucket}/run/report"
    config = ReportConfig(workdir=f"{bucket}/run/", out=out, mirror=str(tmp_path / "mirror"))
    with refused(InputError, key="workdir"):
        report.run(config)
    there = [put(bucket, tmp_path / "tasks", "tasks"), put(bucket, tmp_path / "vocab", "vocab")]
    objects.put(f"{bucket}/run/train/metrics.jsonl", b"")  # not finished
    report.run(config)
    made = Manifest.read(out)
    assert (made.config["stages"], made.summary) == (there, "2 stages, 0 tasks")
    assert b"summary of vocab" in (objects.read(f"{out}/report.html") or (b"",))[0]
    report.run(config)  # is not a stage that it reports
    assert "up to date" in capsys.readouterr().out


def test_answers_to_glue_are_found_in_the_store(bucket, tmp_path):
    folder = tmp_path / "evaluate-rte"
    rows = folder / answers.FOLDER / "RTE.tsv"
    rows.parent.mkdir(parents=True)
    rows.write_text(submit.constant_rows(answers.server_tasks()["RTE"]))
    put(bucket, folder, "evaluate")
    put(bucket, tmp_path / "vocab", "vocab")
    out = f"{bucket}/run/submit"
    submit.run(SubmitConfig(workdir=f"{bucket}/run", out=out, mirror=str(tmp_path / "mirror"), fill=True))
    made = Manifest.read(out)
    assert "RTE" not in made.figures["filled"]
