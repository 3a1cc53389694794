"""What holds of every format: documents, ids and counts are the same, whatever the cut and the packing."""

import bz2
import itertools
import shlex
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipeline import shards
from pipeline.errors import InputError
from pipeline.readers import FileRange, ReadLog, open_corpus
from pipeline.records.manifest import require_manifest
from pipeline.records.metrics import OUTCOMES
from tests.pipeline.readers.reading import config, read
from tests.support import forked, formats
from tests.support.formats import MANY, ONE, TEXTS, write
from tests.support.refusals import refused

EVERY = MANY | ONE
# Their files can be cut anywhere; others are cut by their reader.
ANYWHERE = [form for form, (corpus, _, _) in MANY.items() if corpus in ("conllu", "cirrussearch", "stackexchange")]


def corpus(path, form, **settings):
    return config(EVERY[form][0], path, **settings)


@pytest.mark.parametrize("form", EVERY)
@pytest.mark.parametrize("split_bytes", [50, 1 << 20])
def test_every_document_is_read_once(form, split_bytes, tmp_path):
    found, log = read(corpus(write(tmp_path, form), form), split_bytes)
    assert [document.text for document in found] == (TEXTS if form in MANY else TEXTS[:1])
    assert len({document.id for document in found}) == len(found)
    assert "broken" not in log


@pytest.mark.parametrize("form", ANYWHERE)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=8))
def test_any_cut_gives_the_same_documents(form, cuts, tmp_path_factory):
    path = write(tmp_path_factory.getbasetemp(), form)
    size = path.stat().st_size
    bounds = sorted({0, size, *(cut % size for cut in cuts)})
    reader = open_corpus(corpus(path, form), "")
    ranges = [FileRange(str(path), start, end) for start, end in itertools.pairwise(bounds)]
    assert [document.text for each in ranges for document in reader.read(each, ReadLog())] == TEXTS


@pytest.mark.parametrize("archive", ["a.zip", "a.tar.gz"])
@pytest.mark.parametrize("form", EVERY)
def test_an_archive_is_read_as_the_files_in_it(form, archive, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    path = write(tmp_path / "in", form)
    if archive == "a.zip":
        with zipfile.ZipFile(tmp_path / "out" / archive, "w") as packed:
            packed.write(path, f"d/{path.name}")
            packed.writestr("d/._other", "x")
    else:
        with tarfile.open(tmp_path / "out" / archive, "w:gz") as packed:
            packed.add(tmp_path / "in", "d")
    found, _ = read(corpus(tmp_path / "out", form))
    expected, _ = read(corpus(path, form))
    assert [document.text for document in found] == [document.text for document in expected]
    inside = f"{tmp_path}/out/{archive}/d/{path.name}"
    assert [d.id for d in found] == [d.id.replace(str(path), inside) for d in expected]


@pytest.mark.parametrize("form", EVERY)
def test_a_file_cut_off_anywhere_is_an_error_or_gives_whole_documents(form, tmp_path):
    path = write(tmp_path, form)
    raw, whole = path.read_bytes(), {document.text for document in read(corpus(path, form))[0]}
    for size in range(len(raw) // 8, len(raw), len(raw) // 8):
        path.write_bytes(raw[:size])
        try:
            found, _ = read(corpus(path, form))
        except InputError as error:
            assert str(path) in str(error) and "\n" not in str(error)  # noqa: PT017, PT018
            continue
        cut = [document.text for document in found if document.text not in whole]
        # Formats without an end of their own: the last lines may be fewer.
        assert form in ("conllu", "html") or not cut, cut


@pytest.mark.parametrize("form", EVERY)
def test_a_file_of_another_kind_is_named(form, tmp_path):
    path = write(tmp_path, form)
    path.write_bytes(b"\x93NUMPY\x01\x00" + bytes(range(256)) * 9)
    with refused(InputError, path=str(path)):
        read(corpus(path, form))


@pytest.mark.parametrize("form", MANY)
def test_a_changed_file_is_noticed(form, tmp_path):
    reader = open_corpus(corpus(write(tmp_path, form), form), "")
    (file_range, *_) = reader.splits(sys.maxsize)
    write(tmp_path, form, TEXTS[:3])
    with refused(InputError, "changed", path=file_range.path):  # as a worker that opens it later
        list(open_corpus(corpus(Path(file_range.path), form), "").read(file_range, ReadLog()))
    Path(file_range.path).unlink()
    with refused(InputError, path=file_range.path):
        list(reader.read(file_range, ReadLog()))


@pytest.mark.parametrize("form", MANY)
def test_progress_is_within_the_range(form, tmp_path):
    reader = open_corpus(corpus(write(tmp_path, form, TEXTS * 5), form), "")
    for file_range in reader.splits(200):
        seen = []
        list(reader.read(file_range, ReadLog(progress=seen.append)))
        assert seen == sorted(seen)
        assert not seen or (seen[0] >= 0 and seen[-1] <= file_range.size)


def test_every_reader_is_here_or_in_the_tests_of_its_own():
    from pipeline.readers import readers

    own = {"books", "lines", "mix", "sample", "text", "wikiextractor", "wikipedia"}
    assert {corpus for corpus, _, _ in EVERY.values()} | own == set(readers()), formats.__name__


# Every real corpus there is in one run, and no document lost.


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


@pytest.mark.slow
@pytest.mark.shared_data
def test_all_corpora_together_are_accounted_for(shared_data, tmp_path):
    mixed = parts(shared_data)
    assert len(mixed) == 5 + 20
    (tmp_path / "corpus").mkdir()
    corpus = {"name": "all", "reader": "mix", "parts": mixed}
    (tmp_path / "corpus" / "all.yaml").write_text(yaml.safe_dump(corpus))
    words = f"+corpus=all vocab={shared_data}/vocab/bert-base-uncased-vocab.txt out={tmp_path}/prepare words=jieba"
    done = forked.module("pipeline.prepare", "--config-dir", tmp_path, *shlex.split(words))
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
