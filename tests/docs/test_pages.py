"""The pages are whole: nothing they name is missing, nothing they show comes from elsewhere."""

import importlib
import os
import re
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from pipeline.cli import composing, conf_files
from tests.support import forked

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "hooks"))
COMMANDS = importlib.import_module("reference").COMMANDS


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it: warnings are errors."""
    out = tmp_path_factory.mktemp("site")
    done = forked.fresh(
        "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", out, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_pages_need_no_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]+)"', text)
        fetched += re.findall(r'<link[^>]*rel="(?:stylesheet|preload|preconnect)"[^>]*>', text)
        assert not [link for link in fetched if "//" in link], page


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_key_of_a_command_is_on_its_page(site, command):
    page = (site / "stages" / f"{command}.html").read_text(encoding="utf-8")
    keys = set(re.findall(r"<td><code>([\w.]+)</code></td>", page))
    for name, schema in COMMANDS.items():
        composing.register(name, schema)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_files.CONF), version_base="1.3"):
        composed = compose(command)
    assert {key.partition(".")[0] for key in keys} >= set(map(str, composed))


def test_a_page_that_is_a_file_can_search_all(site, drawn):
    address = f"{(site / 'stages' / 'train.html').as_uri()}?q=decontamination"
    page = drawn(address, "--virtual-time-budget=8000")
    assert re.search(r'result__meta">[1-9]\d* matching document', page)
    assert (site / "changelog.html").as_uri() in page.partition("md-search-result__list")[2]


def test_every_configuration_is_a_command_with_a_schema():
    assert {path.stem for path in conf_files.CONF.glob("*.yaml")} == {*COMMANDS, "hydra"}


def test_a_key_stands_with_its_type_default_and_meaning(site):
    page = (site / "stages" / "prepare.html").read_text(encoding="utf-8")
    row = next(row for row in page.split("<tr>") if "<code>sequence_length</code>" in row)
    assert re.findall(r"<td>(.*?)</td>", row, re.S) == [
        "<code>sequence_length</code>",
        "int",
        "<code>128</code>",
        "Tokens per sequence, with [CLS] and two [SEP].",
    ]


def test_every_proof_that_a_page_names_is_there(root):
    pages = [*(root / "docs").rglob("*.md"), root / "README.md", root / "SECURITY.md"]
    named = [
        (page.name, *found)
        for page in pages
        for found in re.findall(r"\b(tests/[\w/]+\.py)(?:::(\w+))?", page.read_text("utf-8"))
        if page.name not in ("add-corpus.md",)  # its test is written by the page itself
    ]
    assert len(named) > 20
    for page, path, test in named:
        assert (root / path).is_file(), f"{page}: {path}"
        assert f"def {test}" in (root / path).read_text("utf-8"), f"{page}: {path}::{test}"


def test_every_proof_of_a_claim_is_in_the_file_that_it_links_to(root):
    text = (root / "docs/reproducibility.md").read_text("utf-8")
    tests = re.findall(r"\[`(test_\w+)`\]\(\.\./([^)]+)\)", text)
    assert len(tests) > 7
    for test, path in tests:
        assert f"def {test}(" in (root / path).read_text("utf-8"), f"{path}: {test}"
    measures = re.findall(r"\[`benchmarks\.([\w.]+)`\]\(\.\./([^)]+)\)", text)
    assert measures
    assert all(path == f"benchmarks/{name.replace('.', '/')}.py" for name, path in measures)


def test_links_of_the_readme_lead_somewhere(root):
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
        links = re.findall(r"\]\((?!https?:)([^)#]+)", (root / name).read_text("utf-8"))
        assert [link for link in links if not (root / link).exists()] == [], name
