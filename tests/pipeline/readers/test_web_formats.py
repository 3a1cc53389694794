"""WARC, HTML and ZIM: held to warcio, and to what a page says."""

import gzip
import io
from pathlib import Path

import pytest
import zstandard
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pipeline.errors import InputError
from tests.pipeline.readers.reading import config, read
from tests.support.formats import TEXTS, write
from tests.support.refusals import refused


def test_records_of_a_wet_file_are_those_of_warcio(tmp_path: Path) -> None:
    path = write(tmp_path, "wet")
    with path.open("rb") as file:
        wanted = [
            (record.rec_headers["WARC-Target-URI"], record.content_stream().read().decode())
            for record in ArchiveIterator(file)
            if record.rec_type == "conversion"
        ]
    found, log = read(config("warc", path))
    assert [(document.id, document.text) for document in found] == wanted
    assert log == {"metadata": 1}


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_file_of_zstd_is_read_with_and_without_a_dictionary(dictionary: bool, tmp_path: Path) -> None:
    raw, path = write(tmp_path, "plain wet").read_bytes(), tmp_path / "b.warc.zst"
    if dictionary:
        made = zstandard.train_dictionary(1024, [raw[n : n + 64] for n in range(0, len(raw) - 64, 8)] * 9)
        frame = b"\x5d\x2a\x4d\x18" + len(made.as_bytes()).to_bytes(4, "little") + made.as_bytes()
        path.write_bytes(frame + zstandard.ZstdCompressor(dict_data=made).compress(raw))
    else:
        path.write_bytes(zstandard.ZstdCompressor().compress(raw))
    assert [document.text for document in read(config("warc", path))[0]] == TEXTS
    path.write_bytes(path.read_bytes()[:-9])
    with refused(InputError, path=str(path)):
        read(config("warc", path))


def response(kind: str, body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    held, named = io.BytesIO(), [("Content-Type", kind), *((k.replace("_", "-"), v) for k, v in headers.items())]
    writer = WARCWriter(held, gzip=True)
    http = StatusAndHeaders(status, named, protocol="HTTP/1.1")
    writer.write_record(
        writer.create_warc_record("https://e.example/", "response", io.BytesIO(body), len(body), http_headers=http)
    )
    return held.getvalue()


PAGE = "<html><body><p>A café of many words, said the keeper.</p></body></html>"


def test_pages_among_responses_are_read_in_their_encoding(tmp_path: Path) -> None:
    records = [
        response("text/html; charset=ISO-8859-1", PAGE.encode("latin-1")),
        response("text/html", gzip.compress(PAGE.encode()), Content_Encoding="gzip"),
        response("text/html", PAGE.replace("<body>", "<meta charset=windows-1252><body>").encode("cp1252")),
        response("image/png", b"\x89PNG"),
        response("text/html", b"", "301 Moved"),
    ]
    (tmp_path / "a.warc.gz").write_bytes(b"".join(records))
    found, log = read(config("warc", tmp_path))
    assert [document.text for document in found] == ["A café of many words, said the keeper."] * 3
    assert log == {"other media": 1, "status": 1}


@pytest.mark.parametrize("form", ["wet", "plain wet"])
def test_a_web_archive_cut_off_within_a_record_is_an_error(form: str, tmp_path: Path) -> None:
    path = write(tmp_path, form, TEXTS[:2])
    raw = path.read_bytes()
    for size in range(1, len(raw), 7):
        path.write_bytes(raw[:size])
        if raw[size:].lstrip(b"\r\n")[:3] in (b"", b"WAR", b"\x1f\x8b\x08"):  # between two records
            continue
        with pytest.raises(InputError):
            read(config("warc", path))


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<body><h1>Head</h1><p>One <b>bold</b> wo<i>rd</i>.<br>Next</p></body>", "Head\nOne bold word.\nNext"),
        ("<body><p>Before.</p><ul><li>one</li><li>two</li></ul></body>", "Before.\none\ntwo"),
        ("<p>a</p><figure><img alt='ALT'><figcaption>Caption</figcaption></figure>", "a\nCaption"),
        (
            "<body><nav>Menu</nav><p>Text &amp; more.</p><footer>Imprint</footer><script>x=1</script></body>",
            "Text & more.",
        ),
        ("Only text &amp;\nlines.", "Only text &\nlines."),
    ],
)
def test_the_prose_of_a_page(page: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(page)
    assert [document.text for document in read(config("html", tmp_path))[0]] == [text]


def test_a_page_of_elements_in_elements_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<div>" * 200_000)
    with refused(InputError, "nested", path=str(tmp_path / "a.html")):
        read(config("html", tmp_path))


def test_html_in_rows_is_read_or_noted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        r'{"text": "<p>One &lt; two.</p><p>Three.</p>"}' + "\n" + r'{"text": "a\\nb\\nc"}'
    )
    found, log = read(config("jsonl", tmp_path))
    assert sorted(log.notes.values()) == [1, 1]
    assert any("corpus.options.html=true" in note for note in log.notes)
    found, log = read(config("jsonl", tmp_path, options={"html": True}))
    assert found[0].text == "One < two.\nThree."
    assert not log.notes


def test_an_alias_in_a_zim_file_is_no_second_page(tmp_path: Path) -> None:
    found, log = read(config("zim", write(tmp_path, "zim")))
    assert [document.id for document in found] == [f"c:page{n}" for n in range(len(TEXTS))]
    assert log["redirect"] >= 1
