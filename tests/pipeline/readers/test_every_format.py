"""What holds of every format: documents, ids and counts are the same, whatever the cut and the packing."""

import itertools
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import InputError
from pipeline.readers import FileRange, ReadLog, open_corpus
from tests.pipeline.readers.reading import config, read
from tests.support import formats
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
    if form == "zim":
        pytest.skip("one file, of gigabytes")
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
    for file_range in reader.splits(sys.maxsize):
        seen = []
        list(reader.read(file_range, ReadLog(progress=seen.append)))
        assert seen == sorted(seen)
        assert not seen or (seen[0] >= 0 and seen[-1] <= file_range.size)


def test_every_reader_is_here_or_in_the_tests_of_its_own():
    from pipeline.readers import readers

    own = {"books", "lines", "mix", "sample", "text", "wikiextractor", "wikipedia"}
    assert {corpus for corpus, _, _ in EVERY.values()} | own == set(readers()), formats.__name__
