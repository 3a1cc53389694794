"""A file that stands for another one is never learnt as text."""

import gzip
import io
import tarfile
import zipfile

import pytest

from pipeline.errors import InputError
from pipeline.storage.placeholders import find_placeholder
from tests.pipeline.readers import reading
from tests.support.refusals import refused

STAND_INS = {
    "lfs": "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "lfs of extensions": "version https://git-lfs.github.com/spec/v1\next-0-foo sha256:1\nsize 1\n",
    "annex": "/annex/objects/SHA256E-s12--4d7a.txt\n",
    "link to annex": "../../.git/annex/objects/Xx/7q/SHA256E-s12--4d7a.txt/SHA256E-s12--4d7a.txt",
    "login": "<!DOCTYPE html>\n<html><head><title>Log in</title></head><body>Sign in</body></html>",
    "page": "\ufeff\n<!-- (c) 2020 -->\n<HTML lang=en><body>Please enable cookies.</body></HTML>",
    "xhtml": '<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "-//W3C">\n<html></html>',
    "bucket": '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>NoSuchKey</Code></Error>',
    "blob": '\ufeff<?xml version="1.0" encoding="utf-8"?><Error><Code>BlobNotFound</Code></Error>',
    "raw": "404: Not Found",
    "hub": "Entry not found",
    "json": '{"error": "Invalid credentials in Authorization header"}',
    "denied": "Access Denied\n",
    "phrase": "503 Service Unavailable",
    "gateway": "Bad Gateway",
    "edge": "error code: 1020",
    "gated": "Access to dataset a/b is restricted. You must be authenticated to access it.",
    "piece": "<h1>Access denied</h1>\n<p>You are not allowed here.</p>\n",
    "moved": '<a href="https://example.org/file">Moved Permanently</a>.\n',
    "message": '{"message": "Forbidden"}',
    "status": '{"message": "The identifier does not exist.", "status": 404}',
    "problem": '{"type": "about:blank", "title": "Gone", "status": 410, "traceId": "00-a"}',
    "array": '[{"error": "x"}]',
    "github": '{"message": "Not Found", "documentation_url": "https://…", "status": "404"}',
}
TEXTS = "version https is safer.|The annex/objects folder holds them.|<doc id=1>|404 pages.|<p>A paragraph.||{|500|"
TEXTS += '{"text": "a", "error": null}|{"message": "hello"}|<b>html</b> is a language|<!-- a --> # A heading|Gone|'
TEXTS += "# External\n\nA chapter.|Not found was he.|<h1>One</h1>\n<h1>Two</h1> and more|Not Foundling|"
TEXTS += '{"title": "Forbidden", "text": "a"}'
READERS = {"text": "a.txt", "books": "a.md", "lines": "a.txt.gz", "jsonl": "a.jsonl.gz", "wikiextractor": "wiki_00"}


def read(reader, folder, **more):
    return reading.read(reading.config(reader, folder, **more))


@pytest.mark.parametrize("text", TEXTS.split("|"))
def test_text_is_no_stand_in(text):
    assert find_placeholder(text) is None
    assert find_placeholder(text + "\n" + "More of it.\n" * 1000) is None


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", STAND_INS)
def test_a_stand_in_is_refused_or_counted(tmp_path, reader, kind):
    path = tmp_path / READERS[reader]
    path.write_text(STAND_INS[kind])
    with refused(InputError, path=str(path)) as caught:
        read(reader, tmp_path)
    assert caught.value.line is None
    found, tally = read(reader, tmp_path, on_error="skip")
    assert (found, tally) == ([], {"broken": 1})
    assert tally.broken == [f"{path}: {find_placeholder(STAND_INS[kind])}"]


@pytest.mark.parametrize("kind", STAND_INS)
def test_a_stand_in_among_chapters_is_left_out(tmp_path, kind):
    content = {"1.txt": b"One.", "2.txt": STAND_INS[kind].encode(), "3.txt": b"Three."}
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, raw in content.items():
            archive.writestr(name, raw)
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as tar:
        for name, raw in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(STAND_INS[kind].encode()))
    found, tally = read("text", tmp_path, on_error="skip")
    assert ([each.text for each in found], tally) == (["One.", "Three."] * 2, {"broken": 3})


ARCHIVES = {"a-pages-articles.xml.bz2": "wikipedia", "a.xml": "wikipedia", "a.parquet": "parquet", "a.zip": "text"}
ARCHIVES |= {"a.tar.gz": "books", "a.epub": "books"}


@pytest.mark.parametrize("kind", ["lfs", "annex", "login", "bucket", "json"])
@pytest.mark.parametrize(("name", "reader"), ARCHIVES.items())
def test_a_stand_in_for_an_archive_is_named(tmp_path, reader, name, kind):
    (tmp_path / name).write_text(STAND_INS[kind])
    with refused(InputError, str(find_placeholder(STAND_INS[kind]))[:20], path=str(tmp_path / name)):
        read(reader, tmp_path)


def test_documents_are_unpacked_whatever_their_names_are(tmp_path):
    (tmp_path / "a.txt").write_bytes(gzip.compress(b"One."))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        for name in ("c.txt.gz", ".git/d.txt", "__MACOSX/e.txt", "./f.txt"):
            archive.writestr(name, gzip.compress(name.encode()))
    found, tally = read("text", tmp_path)
    assert [each.text for each in found] == ["One.", "c.txt.gz", "./f.txt"]
    assert tally == {".txt files in archives": 2}


OTHERS = [b"%PDF-1.4\n", b"{\\rtf1 a}", b"PK\3\4", b"<mediawiki xmlns='a'>", b"<?xml version='1.0'?><d:error/>"]


@pytest.mark.parametrize("raw", [*OTHERS, b"WARC/1.0\r\n"])
def test_other_formats_are_no_text(tmp_path, raw):
    (tmp_path / "a.txt").write_bytes(b"")
    assert [each.text for each in read("text", tmp_path)[0]] == [""], "in the wrong name"
    (tmp_path / "a.txt").write_bytes(raw)
    with refused(InputError, path=str(tmp_path / "a.txt")):
        read("text", tmp_path)
