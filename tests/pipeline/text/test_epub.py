"""Books in EPUB."""

import io
import zipfile

import pytest

from pipeline.text import epub

CONTAINER = '<container><rootfiles><rootfile full-path="OPS/b.opf"/></rootfiles></container>'
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf"
  xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>A  Book</dc:title></metadata>
<manifest><item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="two" href="c%202.xhtml" media-type="application/xhtml+xml"/>
<item id="one" href="text/c1.xhtml" media-type="application/xhtml+xml"/>
<item id="p" href="p.png" media-type="image/png"/></manifest>
<spine><itemref idref="n"/><itemref idref="one"/><itemref idref="two"/><itemref idref="p"/></spine>
</package>"""
FILES = {
    "META-INF/container.xml": CONTAINER,
    "OPS/b.opf": PACKAGE,
    "OPS/nav.xhtml": "<html><body><p>Contents</p></body></html>",
    "OPS/text/c1.xhtml": "<html><head><title>no</title></head><body><h1>One</h1><p>He <i>said</i>\n"
    "&amp; went.<br/>Next.</p><script>no()</script></body></html>",
    "OPS/c 2.xhtml": "<html><body><div>Two<p>The end.</div></body></html>",
}


def packed(files: dict[str, str]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return raw.getvalue()


def test_chapters_come_in_reading_order_as_paragraphs() -> None:
    book = epub.parse(packed(FILES))
    assert book.title == "A Book"
    assert book.text == "One\nHe said & went.\nNext.\nTwo\nThe end."


ENCRYPTED = '<encryption><CipherReference URI="OPS/text/c1.xhtml"/></encryption>'
FONT = '<encryption><CipherReference URI="OPS/font.otf"/></encryption>'


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"META-INF/container.xml": "<container/>"}, "container.xml"),
        ({"META-INF/container.xml": "<container"}, "readable"),
        ({"OPS/b.opf": PACKAGE.replace("c%202", "c3")}, "ops/c3.xhtml"),
        ({"META-INF/encryption.xml": ENCRYPTED}, "encrypted"),
    ],
)
def test_what_is_wrong_with_a_broken_book_is_said(change: dict[str, str], why: str) -> None:
    with pytest.raises(epub.Broken, match=why):
        epub.parse(packed(FILES | change))


def test_encrypted_fonts_do_no_harm() -> None:
    assert epub.parse(packed(FILES | {"META-INF/encryption.xml": FONT})).title == "A Book"


def test_what_is_no_archive_is_no_epub() -> None:
    with pytest.raises(epub.Broken, match="readable"):
        epub.parse(b"Some text")
