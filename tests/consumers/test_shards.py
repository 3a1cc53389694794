"""A folder of shards opens whole in the libraries that the page of the format names, by its lines."""

import re

import pytest

from pipeline import prepare
from pipeline.stages import stage
from tests.consumers.conftest import python_with
from tests.docs.fences import blocks
from tests.support import preparing

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(1800)]
PACKAGES = ("duckdb==2.0.1", "datasets==5.2.0", "polars==2.1.0", "pandas==3.1.1")
SIZES = {  # how many rows a line gives
    "duckdb": "{}.fetchall()[0][0]",
    "datasets": "sum(map(len, {}.values()))",
    "polars": "len({}.collect())",
    "pandas": "sum(len({}) for FILE in sorted(glob.glob('work/sample/prepare/*.arrow')))",
}


VERSIONS = dict(package.split("==") for package in PACKAGES)
LOST = {"polars": "metadata is lost", "pandas": "metadata is lost; a file at a time", "duckdb": "by pyarrow's dataset"}


@pytest.mark.parametrize(
    "library", [pytest.param(each, marks=pytest.mark.tool(each, VERSIONS[each])) for each in SIZES]
)
def test_a_library_gives_every_row_of_a_folder(library, root, tmp_path, monkeypatch, record_property):
    page = root / "docs" / "format.md"
    (opened,) = (block.text for block in blocks(page) if block.title == "open_shards.py")
    lines = dict(re.findall(r"^\| (\w+) [\d.]+ \| `([^`]+)`", page.read_text(), re.M))
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "work" / "sample" / "prepare"
    documents = preparing.random_documents(tmp_path / "vocab", 0, words=40, lines=600, size=6)
    (tmp_path / "text.txt").write_text("\n\n".join([*documents, "ab"]))  # the last one is left out
    config = preparing.settings("lines", tmp_path / "text.txt", tmp_path / "vocab", out=str(out), validation_share=0.2)
    made = stage.run("prepare", config, prepare.make)
    assert made.figures["dropped"] == 1
    script = f"import glob, json, {library}\n{opened}\nprint(json.dumps([rows.count_rows(), {SIZES[library]}]))"
    found = python_with("shards", *PACKAGES)(script.replace("{}", lines[library]), None)
    assert found == [sum(shard["rows"] for shard in made.figures["shards"].values())] * 2
    record_property("works", "shards: rows of a folder")
    if library in LOST:
        record_property("differs", LOST[library])
