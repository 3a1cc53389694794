"""What people type for a path is read as that path; what Hydra reads stays as it is."""

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from pipeline.cli import composing
from pipeline.cli.composing import check_addresses
from pipeline.cli.overrides import parse_override, quote_unparsable, render_argv
from pipeline.config import (
    CorpusConfig,
    EvaluateConfig,
    FiltersConfig,
    PredictConfig,
    PrepareConfig,
    RunnerConfig,
    VocabConfig,
)
from pipeline.errors import ConfigError
from tests.support import forked
from tests.support.refusals import refused
from tests.support.runs import configured


@pytest.mark.parametrize(
    "path", ["/tmp/việt.xml.bz2", "/tmp/viwiki (1).xml.bz2", "it's.txt", "a&b;c", "/a=b", "50#.txt", "!"]
)
@pytest.mark.parametrize("key", ["corpus.path", "+corpus.path", "++stages.prepare.out"])
def test_a_path_that_the_grammar_has_no_characters_for_is_read(key, path):
    override = OverridesParser.create().parse_override(quote_unparsable(f"{key}={path}"))
    assert override.value() == path


@given(st.text(st.sampled_from("a1=~+./,:[]{}()'\" \\$é"), max_size=12))
def test_what_parses_stays_and_nothing_that_does_not_is_broken_further(word):
    mended = quote_unparsable(word)
    assert mended == word or (not parse_override(word) and parse_override(mended))


def overrides(command, *words):
    return [word for word in render_argv(list(words), command) if not word.startswith("hydra/")]


@pytest.mark.parametrize("sign", ["", "+"])
def test_a_choice_is_made_with_and_without_a_plus(sign):
    words = (f"{sign}corpus=wiki", f"{sign}model=tiny", f"{sign}corpus.path=x")
    assert overrides("run", *words) == ["+corpus=wiki", "model=tiny", f"{sign * 2}corpus.path=x"]
    assert overrides("evaluate", f"{sign}task=rte", "task.dev=a") == ["+task=rte", "task.dev=a"]


@pytest.mark.parametrize(
    ("typed", "value"), [("1e4", 10_000), ("1.5e3", 1500), ("2E+2", 200), ("1e-4", 1e-4), ("1.5e0", 1.5), ("7", 7)]
)
def test_a_whole_number_may_be_written_with_an_exponent(typed, value):
    (word,) = overrides("train", f"steps={typed}")
    found = OverridesParser.create().parse_override(word).value()
    assert (found, type(found)) == (value, type(value))


EXPLAINED = {
    "a=[x, y]": ("a", "'a=[x, y]'"),
    "+a.b={x: 1, y: 2}": ("a.b", "'+a.b={x: 1, y: 2}'"),
    "a=1,2": ("a", "'a=[1,2]'"),
    "a=[é]": ("a", "quotation marks"),
    "corpus.path=[ab]/x": ("corpus.path", """'corpus.path="[ab]/x"'"""),
}


@pytest.mark.parametrize("words", EXPLAINED)
def test_words_that_are_no_override_are_explained(words):
    key, cure = EXPLAINED[words]
    with refused(ConfigError, key=key) as caught:
        render_argv(words.split(), "train")
    assert cure in str(caught.value)


def test_options_may_stand_anywhere():
    words = render_argv(["steps=1", "--cfg", "job", "seed=2", "--resolve"], "train")
    assert (words[:3], words[-2:]) == (["--cfg", "job", "--resolve"], ["steps=1", "seed=2"])


@pytest.mark.parametrize("typed", ["2024_01_15", "1e3", "0x1", "true", "007", "1.50", "nan", "a1", "~/x y"])
def test_a_text_stays_as_typed_and_so_do_labels(typed):
    config = composing.compose("vocab", VocabConfig, [f"workdir={typed}", "out=x", "+corpus=wiki"])
    assert config.workdir == typed.replace("~", str(Path.home()))
    words = ["+task=own", "task.labels=[true, 1_0,1e3,no]", "pretrained=x", "out=y"]
    assert list(composing.compose("evaluate", EvaluateConfig, words).task.labels) == ["true", "1_0", "1e3", "no"]


@pytest.mark.parametrize("value", ["no", "1:30", "010", "1_0", "1_000", "1_0.5", "1e3", "TRUE", "null", "[1_0,2]"])
def test_a_file_is_read_as_the_command_line_is(tmp_path, value):
    path = tmp_path / "x.yaml"
    path.write_text(f"x: {value}")
    typed = parse_override(overrides("run", f"x={value}")[0])
    assert OmegaConf.to_container(OmegaConf.load(path)) == {"x": typed.value()}


@pytest.mark.parametrize(
    ("typed", "key"), [("task.dev_share=1_0", "task.dev_share"), ("seeds=[1_000,1_0]", "seeds[1]")]
)
def test_an_underscore_parts_thousands_alone(typed, key):
    with refused(ConfigError, "1_000", key=key, value="1_0"):
        configured("evaluate", "+task=own", "pretrained=x", typed)


# An address of an object store is never taken for a local folder.


def config(**changes):
    corpus = CorpusConfig(name="c", reader="text", path="s3://corpora/text")
    values = {"corpus": corpus, "runner": RunnerConfig(), "source": "s", "vocab": "v", "out": "o"}
    return PrepareConfig(**(values | changes))


def test_a_run_its_corpus_and_its_inputs_may_be_in_a_store_but_for_a_command_without_a_folder():
    check_addresses(config())
    check_addresses(config(workdir="s3://b/run", out="S3://b/run/made", vocab="gs://b/run/vocab"))
    check_addresses(config(workdir="abfs://c/run", out="abfss://c@a.dfs.core.windows.net/made"))
    with refused(ConfigError, key="pretrained"):
        check_addresses(PredictConfig(pretrained="s3://b/run/convert"))


WRONG = {"out": "az://corpora/made", "workdir": "hdfs://corpora/run", "vocab": "memory://corpora/vocab"}
WRONG |= {"mirror": "s3://corpora/mirror"}
WRONG = [(key, {key: value}) for key, value in [*WRONG.items(), ("workdir", "s3:/b/run")]]
WRONG.append(("filters.decontaminate", {"filters": FiltersConfig(decontaminate=["a", "hdfs://c/d"])}))
WRONG.append(("corpus.path", {"corpus": CorpusConfig(name="c", reader="text", path="GS:b/text")}))


@pytest.mark.parametrize(("key", "changes"), WRONG)
def test_other_stores_and_other_paths_are_refused(key, changes):
    with refused(ConfigError, key=key):
        check_addresses(config(**changes))


@pytest.mark.slow
def test_a_value_that_nothing_reads_is_named_once(root, tmp_path):
    """Also in a plan, by the stage that was typed; the same value is silent where it is read."""
    words = ("evaluate.pooling=mean", "evaluate.chunks=3", "tasks=[sample_next,sample_order]", "dry_run=true")
    done = forked.module("pipeline.run", "+corpus=sample", *words, cwd=tmp_path, env={"PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stderr.splitlines()] == ["evaluate.chunks=3", "evaluate.pooling=mean"]
    words += ("evaluate.encoder=frozen", "evaluate.truncation=chunks")
    done = forked.module("pipeline.run", "+corpus=sample", *words, cwd=tmp_path, env={"PYTHONPATH": str(root)})
    assert (done.returncode, done.stderr) == (0, "")
