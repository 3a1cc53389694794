"""`--help` is short and whole, and its words are those of the schemas."""

import contextlib
import os
import pty
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

from pipeline.cli import help_text
from pipeline.common.schema import Section, group, input_path, option, runtime_option
from pipeline.config import EmbedConfig, PredictConfig, RunConfig, StageConfig
from pipeline.errors import ConfigError
from pipeline.stages.registry import KNOWN
from tests.support import forked
from tests.support.refusals import refused


@dataclass(kw_only=True)
class Inner(Section, key="inner"):
    share: float = option(0.5, "Of all.", at_least=0, below=1)


@dataclass(kw_only=True)
class Sample(StageConfig):
    source: str = input_path(help="Where it is from.")
    inner: Inner = group(Inner)
    names: list[str] = option([], "In order.", choices=("a", "b"))
    limit: int | None = runtime_option(None, "Of rows.", above=0)
    plain: int = 3


def test_meanings_are_the_help_texts_of_the_fields():
    keys = {key.name: key for key in help_text.order_keys(Sample, {"limit": 7})}
    assert list(keys)[-3:] == ["out", "force", "mirror"]
    assert keys["source"][-2:] == ("Where it is from.", "Read by the command.")
    assert keys["source"].default is None
    assert (keys["inner.share"].default, keys["inner.share"].meaning) == ("0.5", "Of all.")
    assert (keys["names"].type, keys["names"].default) == ("list[str]", "[]")
    assert keys["names"].meaning == "In order. One of a, b."
    assert (keys["limit"].type, keys["limit"].default) == ("int or null", "7")
    assert keys["limit"][-2:] == ("Of rows.", "Does not change the output.")
    assert (keys["plain"].default, keys["plain"].meaning) == ("3", "")


def schemas():
    """The schema of every command."""
    stages = {name: stage.schema for name, stage in KNOWN.items()}
    return stages | {"run": RunConfig, "predict": PredictConfig, "embed": EmbedConfig}


@pytest.mark.parametrize("command", schemas())
def test_every_key_of_a_command_has_a_help_text(command):
    for key in help_text.keys(schemas()[command], {}):
        assert re.fullmatch(r"([A-Z\[]|modernbert:).*\.", key.meaning), key


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_value_beyond_its_limits_names_its_key_that_of_a_section_with_its_name_in_front(share):
    with refused(ConfigError, "share=", key="inner.share"):
        Inner(share=share)
    for key, value in {"limit": 0, "names": ["a", "c"]}.items():
        with refused(ConfigError, re.escape(f"{key}={value}: "), key=key):
            Sample(source="x", **{key: value})
    assert Sample(source="x", names=["a", "b"], limit=1).limit == 1


def on_a_terminal(root, *words, **environment):
    """What a command prints where its output is a terminal of 72 columns."""
    ours, theirs = pty.openpty()
    env = os.environ | {"COLUMNS": "72", **environment}
    process = subprocess.Popen([sys.executable, "-m", *words], cwd=root, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while more := os.read(ours, 4096):
            shown += more
    assert process.wait() == 0
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("command", ["pipeline.vocab", "model.train"])
def test_help_fits_the_terminal_and_shows_the_values_of_the_command_line(root, command):
    key = "size=777" if command == "pipeline.vocab" else "steps=777"
    shown = on_a_terminal(root, command, key, "--help")
    assert f"\033[1m{key}\033[0m" in shown
    plain = re.sub(r"\033\[\d*m", "", shown)
    lines = plain.splitlines()
    assert max(len(line) for line in lines if " " in line.strip()) <= 72
    assert "Powered by" not in plain
    assert "  seed=0" in plain


@pytest.mark.slow
def test_no_colours_where_none_are_wanted(root):
    assert "\033" not in on_a_terminal(root, "pipeline.report", "--help", NO_COLOR="1")
    done = forked.module("pipeline.report", "-h", check=True)
    assert "\033" not in done.stdout


MODULES = "model.launch model.preflight pipeline.common.heartbeat pipeline.inspect pipeline.orchestration.run_stage"


@pytest.mark.parametrize("module", MODULES.split())
def test_other_commands_explain_themselves_too(module):
    done = forked.module(module, "--help", check=True)
    assert module in done.stdout
    assert done.stderr == ""


def test_the_help_of_a_run_tells_how_to_reach_a_stage():
    done = forked.module("pipeline.run", "+corpus=sample", "--help", check=True)
    told = " ".join(done.stdout.split())
    for words in ("train.steps=9000", "--force STAGE", "@FILE", "For example: python -m pipeline"):
        assert words in told


SHOWN = {
    "train": "  objective= left_to_right, mlm",
    "prepare": "  filters= web",
    "vocab": "  corpus.name=(set by corpus=NAME) ",
}


@pytest.mark.parametrize(("command", "shown"), SHOWN.items())
def test_every_choice_is_listed_and_what_it_sets(command, shown):
    done = forked.module(f"pipeline.{command}", "--help", check=True)
    lines = [re.sub(r"(?<=\S) +", " ", line) for line in done.stdout.splitlines()]
    assert any(line.startswith(shown.rstrip()) for line in lines)
