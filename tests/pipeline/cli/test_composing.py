"""An address of an object store is never taken for a local folder."""

from pathlib import Path

import pytest

from pipeline.cli.composing import check_addresses
from pipeline.config import CorpusConfig, FiltersConfig, PredictConfig, PrepareConfig, RunnerConfig
from pipeline.errors import ConfigError, Exit
from tests.support import forked
from tests.support.refusals import refused


def config(**changes: object) -> PrepareConfig:
    values: dict[str, object] = {
        "corpus": CorpusConfig(name="c", reader="text", path="s3://corpora/text"),
        "runner": RunnerConfig(),
        "source": "s",
        "vocab": "v",
        "out": "o",
    }
    return PrepareConfig(**(values | changes))  # type: ignore[arg-type]


def test_a_corpus_may_be_in_a_store() -> None:
    check_addresses(config())


def test_a_run_and_its_inputs_may_be_in_a_store() -> None:
    check_addresses(config(workdir="s3://b/run", out="S3://b/run/made", vocab="gs://b/run/vocab"))
    check_addresses(config(workdir="abfs://c/run", out="abfss://c@a.dfs.core.windows.net/made"))


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("out", {"out": "az://corpora/made"}),
        ("workdir", {"workdir": "hdfs://corpora/run"}),
        ("vocab", {"vocab": "memory://corpora/vocab"}),
        ("mirror", {"mirror": "s3://corpora/mirror"}),
        ("filters.decontaminate", {"filters": FiltersConfig(decontaminate=["a", "hdfs://c/d"])}),
        ("workdir", {"workdir": "s3:/b/run"}),
        ("corpus.path", {"corpus": CorpusConfig(name="c", reader="text", path="GS:b/text")}),
    ],
)
def test_other_stores_and_other_paths_are_refused(key: str, changes: dict[str, object]) -> None:
    with refused(ConfigError, key=key):
        check_addresses(config(**changes))


def test_a_command_without_a_folder_reads_local_paths() -> None:
    with refused(ConfigError, key="pretrained"):
        check_addresses(PredictConfig(pretrained="s3://b/run/convert"))


def test_a_run_in_another_store_is_refused_and_leaves_nothing(root: Path, tmp_path: Path) -> None:
    done = forked.module(
        "pipeline.run", "+corpus=sample", "workdir=hdfs://corpora/run", cwd=tmp_path, env={"PYTHONPATH": str(root)}
    )
    assert done.returncode == Exit.USER
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_value_that_nothing_reads_is_named_once(root: Path, tmp_path: Path) -> None:
    """Also in a plan, by the stage that was typed; the same value is silent where it is read."""
    words = ("evaluate.pooling=mean", "evaluate.chunks=3", "tasks=[sample_next,sample_order]", "dry_run=true")
    done = forked.module("pipeline.run", "+corpus=sample", *words, cwd=tmp_path, env={"PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stderr.splitlines()] == ["evaluate.chunks=3", "evaluate.pooling=mean"]
    words += ("evaluate.encoder=frozen", "evaluate.truncation=chunks")
    done = forked.module("pipeline.run", "+corpus=sample", *words, cwd=tmp_path, env={"PYTHONPATH": str(root)})
    assert (done.returncode, done.stderr) == (0, "")
