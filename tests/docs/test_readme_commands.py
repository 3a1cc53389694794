"""Every command of the README and the pages is one that there is, with keys that it has.

Nothing is run here: configurations are composed and validated, as they are before work begins. What
is run as it stands are the pages "How to add …" and the README's steps from an existing BERT, in
test_worked_examples.py.
"""

import importlib.util
import re
import shlex
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.cli import composing, conf_files, overrides
from pipeline.config import RunConfig
from pipeline.orchestration import compose_run, graph
from pipeline.stages.registry import STAGES
from tests.docs.fences import FENCE, blocks, commands

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "hooks"))
COMMANDS = importlib.import_module("reference").COMMANDS
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Programs of others, by what they need that a test has not: only files they name are looked for.
OTHERS = {"kubectl": "a cluster", "sbatch": "a cluster", "mvn": "a cluster", "java": "a cluster", "docker": "a daemon"}
OTHERS |= {"wandb": "a network", "go": "a network"}
INLINE = re.compile(r"`([\w.-]+(?:=[^`\s]+)?(?: [\w.-]+=[^`\s]+)*)`")
FILE = r"(?:html|jsonl?|md|py|tsv|txt|yaml)\b"
STAGE_KEY = re.compile(rf"(?:stages\.)?({'|'.join(STAGES)})(?:-\w+)?\.(?!{FILE})(\w[\w.]*)")
PROSE = re.compile(r"`((?:python|deepspeed|make) [^`]+)`")


def found():
    """(page, command line), those in the text too."""
    listed = []
    for page in PAGES:
        if page.name.startswith("add-"):
            continue
        prose = FENCE.sub("", page.read_text(encoding="utf-8"))
        lines = [*commands(page), *PROSE.findall(prose)]
        listed += [(page.relative_to(ROOT).as_posix(), line) for line in lines]
    return listed


def keys_of_stages():
    """(page, STAGE.KEY or STAGE.KEY=VALUE) in the text, and all KEY=VALUE of pages about runs."""
    listed = []
    for page in PAGES:
        prose = FENCE.sub("", page.read_text(encoding="utf-8"))
        anywhere = page.name in ("cluster-checklist.md", "babylm.md")
        for code in INLINE.findall(prose):
            words = code.split()
            if all(STAGE_KEY.match(word) or (anywhere and "=" in word) for word in words):
                listed += [(page.relative_to(ROOT).as_posix(), word) for word in words]
    return sorted(set(listed))


def check_make(words):
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert targets
    assert words[0] in targets[1].split()


@cache
def check_keys(command, *words):
    """Compose the configuration that a command line asks for."""
    typed = [
        word.replace("=NAME", "=sample") for word in words if word not in ("--help", "…") and not word.startswith("@")
    ]
    if any(hours := [float(word.removeprefix("hours=")) for word in typed if word.startswith("hours=")]):
        assert hours[0] > 0  # which counts the words of a text that is not here
        typed = ["recipe=planned", *(word for word in typed if not word.startswith("hours="))]
    if command == "run":
        config = compose_run.parse_run_argv(command, RunConfig, typed, asked="…" in words)
        assert config is None or len(graph.plan_graph(config)) > (3 if {"recipe=planned", "tasks=[]"} & {*typed} else 5)
        return
    composed = composing.compose(command, COMMANDS[command], typed)
    if "…" not in words:  # else only these keys are shown
        composing.validate(composed, COMMANDS[command])


def check(words):
    """Raise unless the command can be there; `words` of one command line."""
    while re.match(r"[A-Z_]+=", words[0]):  # set for the command that follows
        words = words[1:]
    if words[:3] == ["python", "-m", "model.launch"] and words[3:]:
        assert words[3] in ("deepspeed", "torchrun")
        check(["deepspeed", *words[4:]])
    elif words[:2] == ["python", "-m"]:
        assert words[2].endswith(".NAME") or importlib.util.find_spec(words[2]), words[2]
        command = words[2].removeprefix("pipeline.")
        named_only = words[3:] in ([], ["--help"]) and command not in ("report", "convert")
        if (conf_files.CONF / f"{command}.yaml").exists() and not named_only:
            check_keys(command, *words[3:])
    elif words[0] == "deepspeed":
        script = next(place for place, word in enumerate(words) if word.endswith(".py"))
        if words[script] != "model/preflight.py":  # which has no keys
            assert words[script] == "model/train.py"
            check_keys("train", *words[script + 1 :])
    elif words[0] == "source":
        assert words[1:] == [".venv/bin/activate"], "what make sets up"
    elif words[0] == "make":
        check_make(words[1:])
    elif words[0] == "python" and words[1].endswith(".py"):
        assert (ROOT / words[1]).exists() or words[1] in {each.title for page in PAGES for each in blocks(page)}
    elif words[0] == "sbatch":
        script = next(place for place, word in enumerate(words) if word.endswith(".sh"))
        assert (ROOT / words[script]).exists(), words[script]
        check_keys("run", *words[script + 1 :])
    elif words[0] in OTHERS:
        files = [after for word, after in pairwise(words) if word == "-f" and "/" in after]
        assert [name for name in files if "job/" not in name and not (ROOT / name).exists()] == []
    else:
        raise AssertionError(f"a program that is neither ours nor of {', '.join(OTHERS)}")


@pytest.mark.parametrize(
    ("page", "line"),
    [pytest.param(*each, marks=[] if each[0] == "README.md" else pytest.mark.slow) for each in found()],
)
def test_a_command_is_there_and_has_these_keys(page, line):
    words = shlex.split(line, comments=True)
    while "|" in words:
        words = words[words.index("|") + 1 :]
    if words:
        check(words)


@pytest.mark.parametrize(("page", "code"), keys_of_stages())
def test_a_key_in_the_text_is_one_that_a_run_takes(page, code):
    compose_run.expand([code if "=" in code else f"{code}=VALUE"])  # exits if not
    if found := STAGE_KEY.match(code):
        assert overrides.type_of(STAGES[found[1]].schema, found[2]) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_block_that_needs_more_than_this_machine_says_so(page):
    for block in blocks(page):
        elsewhere = any(f"{other} " in block.text for other in OTHERS)
        fetches = re.search(r"\+corpus=(\w*wiki|glue)\b(?!.*(corpus\.path|dry_run))", block.text, re.S)
        if block.language == "sh" and (elsewhere or fetches):
            assert re.search(r"# needs a (network|cluster)", block.text), block.text
