"""Books in folders and archives."""

import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from pipeline.errors import InputError
from pipeline.storage import budget
from tests.pipeline.readers.reading import config, read
from tests.support.refusals import refused

BOOKS = {
    f"{name}.txt": f"The story of {name}.\n\nThe end.\n" * n for n, name in enumerate(["ant", "bee", "cat", "dog"], 1)
}


def documents(path, split_bytes=2**20, reader="books", encoding=None):
    return read(config(reader, path, encoding=encoding), split_bytes)


def stem(document):
    return Path(document.id).stem


def fill_folder(place):
    for name, text in BOOKS.items():
        (place / name).write_text(text)
    (place / "notes.pdf").write_text("no book")
    return place


def fill_zip(place):
    with zipfile.ZipFile(place / "books.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("all/notes.pdf", "no book")
        archive.writestr("__MACOSX/._ant.txt", "no book")
        link = zipfile.ZipInfo("all/link.txt")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "ant.txt")  # as archives hold where it leads to
        for name, text in BOOKS.items():
            archive.writestr(f"all/{name}", text)
    return place / "books.zip"


def fill_tar(place):
    with tarfile.open(place / "books.tar.gz", "w:gz") as archive:
        for name, text in {"notes.pdf": "no book", **BOOKS}.items():
            member = tarfile.TarInfo(f"all/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("all/link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "ant.txt"
        archive.addfile(link)
    return place / "books.tar.gz"


@pytest.mark.parametrize("fill", [fill_folder, fill_zip, fill_tar])
@pytest.mark.parametrize("split_bytes", [1, 30, 100, 2**20])
def test_each_book_is_read_once_however_it_is_cut(fill, split_bytes, tmp_path):
    found, _ = documents(fill(tmp_path), split_bytes)
    assert list(map(stem, found)) == ["ant", "bee", "cat", "dog"]
    assert found[0].text == "The story of ant.\nThe end."


def test_what_is_no_text_is_counted(tmp_path):
    assert documents(fill_zip(tmp_path))[1] == {".pdf files in archives": 1, ".txt files in archives": 2}
    assert documents(fill_tar(tmp_path))[1] == {".pdf files in archives": 1, ".txt files in archives": 1}


@pytest.mark.parametrize("reader", ["books", "csv"])
def test_a_zip_archive_with_a_password_says_so(reader, tmp_path):
    raw = fill_zip(tmp_path).read_bytes()
    for head in (b"PK\3\4\x14\0", b"PK\1\2\x14\3\x14\0"):  # flags follow
        raw = raw.replace(head + b"\0", head + b"\1")
    (tmp_path / "books.zip").write_bytes(raw)
    with refused(InputError, "password", path=str(tmp_path / "books.zip")):
        read(config(reader, tmp_path))


def test_an_empty_book_is_a_document_too(tmp_path):
    (tmp_path / "empty.txt").touch()
    assert [d.text for d in documents(tmp_path)[0]] == [""]


def test_encodings_are_counted(tmp_path):
    (tmp_path / "old.txt").write_bytes("Café".encode("cp1252"))
    (tmp_path / "twice.txt").write_bytes("CafÃ©".encode())
    found, tally = documents(tmp_path)
    assert {d.text for d in found} == {"Café"}
    assert tally.notes == {"read as cp1252": 1, "mis-encoded letters mended": 1}


@pytest.mark.parametrize("reader", ["books", "text"])
@pytest.mark.parametrize("written", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_takes_precedence_over_the_stated_encoding(written, reader, tmp_path):
    (tmp_path / "marked.txt").write_bytes("Café".encode(written))
    (tmp_path / "old.txt").write_bytes("Café".encode("cp1252"))
    found, _ = documents(tmp_path, reader=reader, encoding="cp1252")
    assert [d.text for d in found] == ["Café", "Café"]


def test_a_damaged_file_with_a_mark_does_not_fit_the_stated_encoding(tmp_path):
    (tmp_path / "marked.txt").write_bytes("Café".encode("utf-8-sig")[:-1])
    with refused(InputError, path=str(tmp_path / "marked.txt")):
        documents(tmp_path, encoding="utf-8")


@pytest.mark.parametrize("fill", [fill_zip, fill_tar])
def test_a_broken_archive_is_named(fill, tmp_path):
    path = fill(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with refused(InputError, path=str(path)):
        documents(path)


def in_place(raw, at, new):
    return raw[:at] + new + raw[at + len(new) :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda tar: gzip.compress(in_place(tar, tar.index(b"all/cat.txt") + 150, b"9")),
        lambda tar: gzip.compress(tar[: tar.index(b"all/cat.txt") + 150]),
        lambda tar: in_place(packed := gzip.compress(tar, 0), packed.index(b"The story of cat"), b"That"),
    ],
    ids=["header", "cut in a header", "byte of a book"],
)
def test_damage_that_looks_like_the_end_of_an_archive_is_named(damage, tmp_path):
    path = fill_tar(tmp_path)
    path.write_bytes(damage(gzip.decompress(path.read_bytes())))
    with refused(InputError, path=str(path)):
        documents(path)


def test_tars_behind_one_another_are_read_whole(tmp_path):
    path = fill_tar(tmp_path)
    packed = path.read_bytes()
    path.write_bytes(packed + packed)
    assert list(map(stem, documents(path)[0])) == ["ant", "bee", "cat", "dog"] * 2
    plain = path.with_name("books.tar")
    plain.write_bytes(gzip.decompress(packed + packed))
    assert list(map(stem, documents(plain)[0])) == ["ant", "bee", "cat", "dog"] * 2


def test_a_damaged_member_is_named(tmp_path):
    path = fill_zip(tmp_path)
    raw = bytearray(path.read_bytes())
    place = raw.index(b"all/cat.txt") + len("all/cat.txt")
    raw[place : place + 10] = bytes(10)
    path.write_bytes(raw)
    with refused(InputError, path=f"{path}/all/cat.txt"):
        documents(path)


def test_a_file_too_long_for_a_book_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "DOCUMENT", 10)
    with refused(InputError, key="corpus.reader"):
        documents(fill_folder(tmp_path))


@pytest.mark.slow
@pytest.mark.shared_data
def test_real_books(shared_data):
    found, tally = documents(shared_data / "books", 2**23)
    text = "\n".join(d.text for d in found)
    assert (len(found), tally.notes["mis-encoded letters mended"]) == (89, 6)
    assert not any(char in text for char in "\r\ufeff\x00")
    assert "# Title" not in text
    assert text.count("_") < 200


@pytest.mark.shared_data
def test_real_archives(shared_data):
    found, tally = documents(shared_data / "nltk", 2**20)
    assert (len(found), tally["other files in archives"]) == (124, 2)
