"""Workers that were started in another directory find what relative paths name."""

from pathlib import Path

import pytest

from pipeline.beam import steps
from pipeline.config import FiltersConfig, PrepareConfig, RunnerConfig
from pipeline.preparation.plan import for_workers, make_plan, unpack
from tests.support import preparing


def config(name: str, options: dict[str, str]) -> PrepareConfig:
    return preparing.settings(
        "lines",
        "texts/*.txt",
        "vocab",
        out="out",
        runner=RunnerConfig(name=name, options=options, exchange="files"),
        filters=FiltersConfig(decontaminate=["task"], banned_file="banned"),
        minimum_characters=0,
    )


@pytest.mark.parametrize(
    ("name", "options"), [("spark", {"environment_type": "EXTERNAL"}), ("flink", {"environment_type": "EXTERNAL"})]
)
def test_tasks_in_another_directory_read_and_write_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, str]
) -> None:
    for folder in ("texts", "vocab", "task", "out", "elsewhere"):
        (tmp_path / folder).mkdir()
    preparing.vocabulary(tmp_path / "vocab", "abc")
    (tmp_path / "texts" / "a.txt").write_text("a b c.\nb c a.\nc b a.\n\nb b c.\nc c.\n")
    (tmp_path / "task" / "dev.tsv").write_text(f"{'x ' * 13}\ty\n")
    (tmp_path / "banned").write_text("zzz\n")
    monkeypatch.chdir(tmp_path)
    given = config(name, options)
    plan = make_plan(given, Path("out"))
    assert (given.corpus.path, given.vocab) == ("texts/*.txt", "vocab")
    monkeypatch.chdir(tmp_path / "elsewhere")
    plan.scratch.mkdir()
    plan.claim()
    task, (element,) = steps.Tokenize(plan), unpack(next(iter(plan.packets())))
    task.setup()
    for write, part in list(task.process(element)):
        list(steps.WriteShards(plan).process((write, [part])))
    assert not plan.error_note.exists(), plan.error_note.read_text()
    assert list((tmp_path / "out").glob("*.arrow"))
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("name", "options"), [("local", {}), ("prism", {}), ("spark", {"environment_type": "LOOPBACK"})]
)
def test_workers_of_this_process_get_paths_as_typed(name: str, options: dict[str, str]) -> None:
    given = config(name, options)
    assert for_workers(given) == given


def test_addresses_stay_as_they_are() -> None:
    given = config("flink", {})
    given.corpus.path = "s3://bucket/texts"
    assert for_workers(given).corpus.path == given.corpus.path
