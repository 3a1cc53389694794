"""Archives are read and never unpacked: no name in one writes a file, no size fills the memory."""

import gzip
import io
import os
import tarfile
import zipfile

import pytest

from pipeline.config import CorpusConfig
from pipeline.errors import InputError
from pipeline.readers import ReadLog, open_corpus
from pipeline.storage import budget
from pipeline.text import epub
from tests.security.hostile import damaged, hammer

NAMES = ["../outside.txt", "/tmp/outside-of-the-corpus.txt", "a/../../outside.txt", "c:\\outside.txt"]
CONTAINER = '<container><rootfile full-path="book.opf"/></container>'
PACKAGE = '<package><item id="a" href="{}" media-type="application/xhtml+xml"/><spine>{}</spine></package>'


def documents(path, on_error="fail"):
    reader = open_corpus(CorpusConfig(name="books", reader="books", path=str(path), on_error=on_error), "")
    tally = ReadLog(on_error)
    return [d.text for split in reader.splits(1 << 20) for d in reader.read(split, tally)]


def zipped(members):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return held.getvalue()


def tarred(members):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return held.getvalue()


def book(pages, spine='<itemref idref="a"/>', href="a"):
    names = {"META-INF/container.xml": CONTAINER.encode()}
    return zipped({**names, "book.opf": PACKAGE.format(href, spine).encode(), **pages})


@pytest.mark.parametrize(("suffix", "pack"), [(".zip", zipped), (".tar.gz", tarred)])
def test_members_named_outside_are_text_and_nothing_else(tmp_path, suffix, pack):
    inner = tmp_path / "corpus"
    inner.mkdir()
    path = inner / f"books{suffix}"
    path.write_bytes(pack({name: b"Words of a book." for name in NAMES}))
    before = sorted(tmp_path.rglob("*"))
    assert documents(path) == ["Words of a book."] * len(NAMES)
    assert sorted(tmp_path.rglob("*")) == before
    assert not os.path.exists("/tmp/outside-of-the-corpus.txt")


def test_a_book_cannot_name_files_outside_its_archive():
    with pytest.raises(epub.Broken, match="incomplete"):
        epub.parse(book({"a": b"<p>Words.</p>"}, href="../../etc/passwd"))


def test_a_member_that_unpacks_to_more_than_fits_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "DOCUMENT", 10_000)
    bomb = b"0" * 20_000
    for suffix, data in ((".zip", zipped({"a.txt": bomb})), (".tar.gz", tarred({"a.txt": bomb}))):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(data)
        with pytest.raises(InputError, match="10,000 bytes"):
            documents(path)
    with pytest.raises(epub.Broken, match="too large"):
        epub.parse(book({"a": bomb}))
    with pytest.raises(epub.Broken, match="too large"):
        epub.parse(zipped({"META-INF/container.xml": bomb}))
    with pytest.raises(epub.Broken, match="too large"):  # one page a thousand times
        epub.parse(book({"a": b"<p>Words of a book.</p>"}, '<itemref idref="a"/>' * 1000))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.tar.gz", b"\x1f\x8b\x08"),
        ("a.zip", zipped({"a.txt": b"Words."}).replace(b"PK\x01\x02\x14\x03\x14", b"PK\x01\x02\x14\x03T")),
        ("a.epub", book({"a": b"<p>Words.</p>"})[1:]),
    ],
    ids=["tar.gz", "zip", "epub"],  # not the bytes, which have the time: workers must collect the same names
)
def test_a_broken_archive_is_named(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=name):
        documents(tmp_path / name)


@pytest.mark.fuzz
@pytest.mark.parametrize("suffix", [".zip", ".tar.gz", ".tar", ".epub"])
def test_a_damaged_archive_is_read_or_named(tmp_path, suffix):
    whole = {
        ".zip": zipped({"a.txt": b"Words of a book.", "b.txt": b"Other words."}),
        ".tar.gz": tarred({"a.txt": b"Words of a book.", "b.txt": b"Other words."}),
        ".tar": gzip.decompress(tarred({"a.txt": b"Words of a book.", "b.txt": b"Other words."})),
        ".epub": book({"a": b"<p>Words.</p>"}),
    }[suffix]
    path = tmp_path / f"a{suffix}"

    def check(data):
        path.write_bytes(data)
        for on_error in ("fail", "skip"):
            try:
                documents(path, on_error)
            except InputError as error:
                assert str(path) in str(error)  # noqa: PT017

    hammer(check, damaged([whole], [b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"]))
