"""Every real corpus there is in one run, and no document lost."""

import bz2
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

from pipeline import shards
from pipeline.records.manifest import require_manifest
from pipeline.records.metrics import OUTCOMES
from tests.support import forked

pytestmark = pytest.mark.slow

# Of the dumps two are no XML, on purpose: they have tests of their own.
BROKEN = {"json-wikipedia-redirect.xml", "wikihadoop-page_sample-history.xml"}


def parts(data):
    """A part of the mix for each corpus; a dump says of itself which language it is in."""
    found = {
        "books": {"reader": "books", "path": f"{data}/books"},
        "speeches": {"reader": "books", "path": f"{data}/nltk/*.zip"},
        "wikitext": {"reader": "text", "path": f"{data}/wikitext2"},
        "english": {"reader": "wikiextractor", "path": f"{data}/wiki_text/en_2021"},
        "chinese": {"reader": "wikiextractor", "path": f"{data}/wiki_text/zh_2024", "language": "zh"},
    }
    for dump in sorted((data / "wiki_xml").rglob("*.xml*")):
        if dump.name not in BROKEN:
            name = dump.name.partition(".")[0].replace("-", "_")
            language = name if dump.parent.name == "minidumps" and name != "simple" else "en"
            found[name] = {"reader": "wikipedia", "path": str(dump), "language": language}
    return found


def pages(dump):
    raw = dump.read_bytes()
    raw = bz2.decompress(raw) if dump.suffix == ".bz2" else raw
    return raw.replace(b"\0", b"").count(b"<page>")  # one is in UTF-16


@pytest.mark.shared_data
def test_all_corpora_together_are_accounted_for(shared_data, tmp_path):
    mixed = parts(shared_data)
    assert len(mixed) == 5 + 20
    (tmp_path / "corpus").mkdir()
    corpus = {"name": "all", "reader": "mix", "parts": mixed}
    (tmp_path / "corpus" / "all.yaml").write_text(yaml.safe_dump(corpus))
    done = forked.module(
        "pipeline.prepare",
        "--config-dir",
        tmp_path,
        *shlex.split(
            f"+corpus=all vocab={shared_data}/vocab/bert-base-uncased-vocab.txt out={tmp_path}/prepare words=jieba"
        ),
    )
    assert (done.returncode, done.stderr) == (0, "")
    figures = require_manifest(tmp_path / "prepare", "prepare", "out").figures
    documents, notes = figures["documents"], figures["notes"]
    assert documents["read"] == sum(documents.get(fate, 0) for fate in OUTCOMES) > 35_000
    assert documents["read"] == sum(notes.get(f"{name}: documents", 0) for name in mixed)
    assert documents["written"] > 20_000
    for name, part in mixed.items():
        if part["reader"] == "wikipedia":  # what is no document is no article, and said to be none
            skipped = [n for why, n in figures["skipped"].items() if why.startswith(f"{name}: ")]
            read = notes.get(f"{name}: documents", 0)
            assert pages(Path(part["path"])) == read + sum(skipped), name
    for split in shards.SPLITS:
        found = shards.open_folder(tmp_path / "prepare", split)
        assert sum(shard.rows for shard in found) == figures["totals"][split]
        assert all(np.diff(shard.offsets).max() <= 125 for shard in found)
