"""A run hands a stage its configuration in a record, and nothing is lost or changed on the way."""

import dataclasses
import json
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import CorpusConfig, FiltersConfig, PrepareConfig, RunnerConfig
from pipeline.errors import ConfigError, InputError
from pipeline.orchestration import run_plan
from pipeline.orchestration.run_plan import Run, StageRecord
from pipeline.records import run_file
from tests.support import forked
from tests.support.examples import examples
from tests.support.refusals import refused

TEXT = st.text(max_size=20) | st.sampled_from(
    ["${oc.env:HOME}", r"\${x}", "a${b", "\\\\", "null", "1e4", "yes", "'", '"', "[a, b]", "# no", "é\n", "\x85"]
)


def config(**changes):
    corpus = CorpusConfig(name="c", reader="text")
    values = {"corpus": corpus, "runner": RunnerConfig(), "source": "s", "vocab": "v", "out": "o"}
    return PrepareConfig(**(values | changes))


def recorded(workdir, made):
    """Write the record of a run of one stage."""
    node = StageRecord(name="prepare", kind="prepare", config=made, needs=("vocab",), fingerprint="f", reason=None)
    run = Run(
        workdir=str(workdir), mirror=None, recipe="r", cores=2, command="c", environment={}, stages={"prepare": node}
    )
    run.write()
    return run


def stage_of(run, *words):
    return run_file.config_of(f"{run.place}#prepare", PrepareConfig, list(words))


def test_a_process_composes_nothing_to_know_its_settings(tmp_path):
    """Nor does it load what only composing needs."""
    run = recorded(tmp_path, config())
    line = (
        "import sys; from pipeline.cli import entry_point; from pipeline.config import PrepareConfig;"
        f"entry_point.parse_argv('prepare', PrepareConfig, ['--from', {run.place + '#prepare'!r}], None);"
        "print(*{'hydra', 'omegaconf', 'antlr4', 'pyarrow', 'numpy', 'torch'} & sys.modules.keys())"
    )
    assert forked.fresh("-c", line).stdout.split() == []


@settings(max_examples=examples(60), deadline=None)
@given(
    TEXT,
    st.lists(TEXT, max_size=3),
    st.dictionaries(TEXT, TEXT | st.integers() | st.floats(allow_nan=False, allow_infinity=False)),
)
def test_any_value_comes_back(tmp_path_factory, text, banned, options):
    corpus = CorpusConfig(name="c", reader="text", path=f"p{text}", options=options)
    given = config(out=f"o{text}", filters=FiltersConfig(banned=banned), corpus=corpus)
    run = recorded(tmp_path_factory.mktemp("record"), given)
    assert (stage_of(run), run_plan.read(run.place)) == (run.stages["prepare"].config, run)


def test_words_change_what_the_record_says(tmp_path):
    run = recorded(tmp_path, config())
    changed = stage_of(run, "seed=3", "corpus.language=vi", "force=true", 'out="1"')
    assert changed == config(seed=3, corpus=CorpusConfig(name="c", reader="text", language="vi"), force=True, out="1")
    for word, place in {"sed=3": "sed", "corpus.x=1": "corpus.x", "seed=a": "seed"}.items():
        with pytest.raises(InputError, match=f"prepare: {place}"):
            stage_of(run, word)
    with refused(ConfigError, key="corpus.language"):
        stage_of(run, "corpus.language=#")


def test_only_its_owner_reads_it_and_no_secret_is_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("FTP_PASS", "it's mine")
    parts = {"a": {"path": "ftp://h/it's mine"}}
    signed = CorpusConfig(name="c", reader="text", path="https://h/a.gz?sig=0123456789", parts=parts)
    run = recorded(tmp_path, config(corpus=signed))
    assert (tmp_path / "run.json").stat().st_mode & 0o777 == 0o600
    assert not re.search("0123456789|s mine", (tmp_path / "run.json").read_text())
    monkeypatch.setenv(run_file.SECRETS, json.dumps(run.stages["prepare"].secrets()))
    assert stage_of(run) == config(corpus=signed), "its own process gets it by the environment"
    with refused(ConfigError, key="prepare.corpus.path"):
        dataclasses.replace(run, here=False).check_unsigned()


@pytest.mark.parametrize(
    "content", [None, b"", b"[1]", b"{", b"\xff", b'{"version": 2}', b'{"version": 1, "stages": 3}']
)
def test_a_file_that_is_no_record_is_named(tmp_path, content):
    path = tmp_path / "run.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        run_file.config_of(f"{path}#prepare", PrepareConfig, [])
    assert (caught.value.path or "").startswith(str(path))


def test_a_record_of_other_code_is_refused(tmp_path):
    run = dataclasses.replace(recorded(tmp_path, config()), code="0.0+1")
    run.write()
    with pytest.raises(InputError, match=r"images of one build"):
        run_plan.read(run.place)


def test_a_stage_runs_from_a_record(tmp_path):
    (tmp_path / "a.txt").write_text("Some text.")
    corpus = CorpusConfig(name="c", reader="text", path=f"{tmp_path}/a.txt")
    run = recorded(tmp_path, config(vocab=f"{tmp_path}/none", corpus=corpus, out=f"{tmp_path}/out"))
    words = [sys.executable, "-m", "pipeline.prepare", "--from", f"{run.place}#prepare"]
    done = forked.run(words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"{tmp_path}/none" in line
    words[-1] = f"{run.place}#vocab"
    done = forked.run(words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "prepare" in done.stderr
