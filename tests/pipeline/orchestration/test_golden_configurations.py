"""What recipes, sizes and the commands of the pages resolve to: a changed default is a changed line here.

`golden/configurations.txt` has the configuration of each command line, as the lines that differ from
the most similar one before it. `--golden` writes it again.
"""

import dataclasses
import itertools
import json
import shlex
from pathlib import Path

import pytest

from pipeline.cli import conf_files
from pipeline.config import RunConfig
from pipeline.console.formatting import flatten
from pipeline.errors import UserError
from pipeline.orchestration import compose_run
from tests.docs.fences import commands

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
GOLDEN = Path(__file__).parent / "golden" / "configurations.txt"
BASE = "+corpus=sample"


def members(group):
    """The choices of a group."""
    return sorted(path.stem for path in (conf_files.CONF / group).glob("*.yaml"))


def of_pages():
    """The runs that the pages start."""
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for line in commands(page):
            words = shlex.split(line, comments=True) if line.startswith("python -m pipeline.run ") else []
            if words and not {"--help", "…"} & {*words} and not any(word.startswith(("@", "hours=")) for word in words):
                found.append(shlex.join(word for word in words[3:] if word != "--cfg" and word != "job"))
    return found


def lines():
    """The command lines, the base first."""
    recipes = [f"{BASE} recipe={name}" for name in members("recipe")]
    pairs = itertools.product(members("recipe"), members("model"))
    sizes = [f"{BASE} recipe={name} model={size}" for name, size in pairs if ("modern" in name) == ("modern" in size)]
    corpora = [f"+corpus={name} recipe=devlin corpus.path=FILE" for name in members("corpus")]
    return list(dict.fromkeys([BASE, *recipes, *sizes, *corpora, *of_pages()]))


def values(line):
    """The configuration of a run and of its stages, by dotted key."""
    words = [*shlex.split(line), "cores=2"]
    try:
        config = compose_run.parse_run_argv("run", RunConfig, words, asked=False)
    except UserError as error:
        return {"refused": str(error.key)}
    stages = {name: dataclasses.asdict(one) for name, one in config.stages.items()}
    plain = {**dataclasses.asdict(dataclasses.replace(config, stages={})), "stages": stages}
    found = dict(flatten(json.loads(json.dumps(plain, default=str))))
    texts = {key: json.dumps(value).replace(str(ROOT), "ROOT") for key, value in found.items()}
    return {key: text.replace(f"{config.workdir}/", "RUN/") for key, text in texts.items()}


def differences(now, before):
    """Where a configuration differs from another one."""
    keys = sorted(key for key in now.keys() | before.keys() if now.get(key) != before.get(key))
    return [f"{key} = {now[key]}" if key in now else f"{key} is not there" for key in keys]


def test_configurations_are_the_golden_ones(request):
    known = {"nothing": {}}
    found = []
    for line in lines():
        now = values(line)
        like, fewest = min(
            ((name, differences(now, before)) for name, before in known.items()), key=lambda pair: len(pair[1])
        )
        found += [f"== {line}", f"as {like}, but", *fewest]
        known[line] = now
    if request.config.getoption("--golden"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text("\n".join(found) + "\n")
    assert found == GOLDEN.read_text().splitlines()
