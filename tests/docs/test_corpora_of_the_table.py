"""Each command of the table of corpora reads a sample of what it names."""

import json
import re
from pathlib import Path

import pytest

from pipeline.cli import entry_point
from pipeline.config import VocabConfig
from tests.pipeline.readers.reading import read
from tests.support import formats

PAGE = Path(__file__).parents[2] / "docs" / "stages" / "prepare.md"
ROWS = [row.split(" | ")[1] for row in PAGE.read_text(encoding="utf-8").split("\n") if row.startswith("| ")]
COMMANDS = [command for row in ROWS for command in re.findall(r"`(\+corpus=[^`]+)`", row)]
ELSEWHERE = {"+corpus=fineweb2", "+corpus=mix", "+corpus=sample"}  # of the hub; of several; of what is installed
TEXT = "The keeper of the lamp counted many boats."
WIKI = f"<page><title>T</title><ns>0</ns><id>1</id><revision><text>{TEXT}</text></revision></page>"
SAMPLES = {
    "wiki": ("a.xml", f"<mediawiki>{WIKI}</mediawiki>"),
    "wikiextractor": ("wiki_00", f'<doc id="1" title="T">\nT\n\n{TEXT}\n</doc>\n'),
    "enterprise": ("a.ndjson", json.dumps({"identifier": 1, "article_body": {"html": f"<p>{TEXT}</p>"}})),
    "books": ("a.txt", TEXT),
    "text": ("a.txt", TEXT),
    "lines": ("a.txt", TEXT),
    "numbered": ("a.txt", f"1\t{TEXT}\n" * 30),
    "jsonl": ("a.jsonl", json.dumps({"text": TEXT})),
    "tsv": ("a.tsv", f"text\tn\n{TEXT}\t1\n"),
}


def sample(name, folder):
    if name in SAMPLES:
        (folder / SAMPLES[name][0]).write_text(SAMPLES[name][1], encoding="utf-8")
    elif name == "parquet":
        formats.rows(folder / "a.parquet", [TEXT])
    else:
        form = next(form for form, (corpus, _, _) in (formats.MANY | formats.ONE).items() if corpus == name)
        formats.write(folder, form, [TEXT])


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in ELSEWHERE])
def test_a_command_of_the_table_reads_what_it_names(command, tmp_path):
    name = "numbered" if "numbered" in command else command.partition("=")[2]
    sample(name, tmp_path)
    words = [*command.split(), f"corpus.path={tmp_path}", "size=100"]
    config = entry_point.compose_config("vocab", VocabConfig, words, False)
    assert config is not None
    found, log = read(config.corpus)
    assert {document.text for document in found} == {TEXT}
    assert "broken" not in log


def test_the_table_has_every_corpus_that_reads_files():
    named = {word for row in ROWS for word in re.findall(r"`(?:\+corpus=)?(\w+)", row)}
    corpora = {path.stem for path in (PAGE.parents[2] / "conf" / "corpus").glob("*.yaml")}
    assert corpora - named <= {"glue"}
