"""Books in EPUB."""

import io
import zipfile
from collections import Counter

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


def packed(files):
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return raw.getvalue()


def test_chapters_come_in_reading_order_as_paragraphs():
    book = epub.parse(packed(FILES))
    assert book.text == "One\nHe said & went.\nNext.\nTwo\nThe end."


ENCRYPTED = '<encryption><CipherReference URI="OPS/text/c1.xhtml"/></encryption>'
FONT = '<encryption><CipherReference URI="OPS/font.otf"/></encryption>'


BROKEN = [({"META-INF/container.xml": text}, why) for text, why in (("<c/>", "container.xml"), ("<c", "readable"))]
BROKEN += [({"OPS/b.opf": PACKAGE.replace("c%202", "c3")}, "ops/c3.xhtml"), (b"Some text", "readable")]


@pytest.mark.parametrize(("change", "why"), [*BROKEN, ({"META-INF/encryption.xml": ENCRYPTED}, "encrypted")])
def test_what_is_wrong_with_a_broken_book_is_said(change, why):
    with pytest.raises(epub.Broken, match=why):
        epub.parse(packed(FILES | change) if isinstance(change, dict) else change)
    assert epub.parse(packed(FILES | {"META-INF/encryption.xml": FONT})).text, "encrypted fonts do no harm"


def chapters(*pages):
    """A book of pages, each with its media type."""
    listed = enumerate(pages)
    items = "".join(f'<item id="i{n}" href="c{n}" media-type="{kind}"/>' for n, (kind, _) in listed)
    spine = "".join(f'<itemref idref="i{n}"/>' for n in range(len(pages)))
    package = f"<package><manifest>{items}</manifest><spine>{spine}</spine></package>"
    texts = {f"OPS/c{n}": page for n, (_, page) in enumerate(pages)}
    return packed({"META-INF/container.xml": CONTAINER, "OPS/b.opf": package, **texts})


KINDS = "text/xml application/xml text/x-oeb1-document application/octet-stream application/xhtml text/plain"


@pytest.mark.parametrize("kind", ["", *KINDS.split(), "Application/XHTML+XML", "application/x-unknown"])
def test_a_chapter_is_one_whatever_its_media_type(kind):
    page = "application/xhtml+xml"
    book = epub.parse(chapters((page, b"<p>One.</p>"), (kind, b"<p>Two.</p>"), (page, b"<p>Three.</p>")))
    assert book.text == "One.\nTwo.\nThree."
    assert not book.passed


def test_what_is_passed_over_is_counted():
    book = epub.parse(packed(FILES))
    assert book.passed == {"tables of contents": 1, "pages that are pictures or sound": 1}
    assert book.title == "A Book"
    package = PACKAGE.replace('<itemref idref="two"/>', '<itemref idref="lost"/>')
    package = package.replace('media-type="image/png"', 'media-type="image/png" fallback="two"')
    book = epub.parse(packed(FILES | {"OPS/b.opf": package}))
    assert book.text == "One\nHe said & went.\nNext.\nTwo\nThe end."
    assert book.passed == {"tables of contents": 1, "pages that the manifest lacks": 1}
    package = PACKAGE.replace('<itemref idref="two"/>', "")
    book = epub.parse(packed(FILES | {"OPS/b.opf": package}))
    assert book.passed["pages out of the reading order"] == 1
    page = "<p>Let <math><mi>x</mi></math> be. So it is.<svg><text>c</text></svg></p>"
    book = epub.parse(packed(FILES | {"OPS/c 2.xhtml": page}))
    assert (book.passed["formulas"], book.passed["drawings"], book.passed["sentences that lack a formula"]) == (1, 1, 1)
    assert book.text.endswith("\nSo it is.")


@pytest.mark.parametrize(
    "number",
    [
        '<a epub:type="noteref" href="#n"><sup>13</sup></a>',
        '<a role="doc-noteref">13</a>',
        '<span epub:type="pagebreak" id="p"><span>1</span>3</span>',
        '<span epub:type="backlink pagebreak">13</span>',
        '<div role="doc-pagebreak">13</div>',
    ],
)
def test_numbers_of_pages_and_notes_are_no_words(number):
    book = epub.parse(chapters(("text/html", f"<p>One{number} word <a href='#s'>[sic]</a>.</p><p>Two.</p>".encode())))
    assert book.text.replace("One\nword", "One word") == "One word [sic].\nTwo."
    assert sum(book.passed.values()) == 1


def test_a_page_that_is_listed_twice_is_read_once():
    items = '<item id="a" href="c0#p1" media-type=""/><item id="b" href="/OPS/c0#p2" media-type=""/>'
    package = f'<package><manifest>{items}</manifest><spine><itemref idref="a"/><itemref idref="b"/></spine></package>'
    pdf = '<rootfile full-path="x.pdf" media-type="application/pdf"/>'
    container = CONTAINER.replace("<rootfile ", pdf + "<rootfile ", 1)
    files = {"META-INF/container.xml": container, "OPS/b.opf": package, "OPS/c0": "<p>One.</p>"}
    assert epub.parse(packed(files)).text == "One."


RUSSIAN = "Старый смотритель шёл."


@pytest.mark.parametrize(
    ("before", "codec", "language", "encoding"),
    [
        ('<?xml version="1.0" encoding="windows-1251"?>', "cp1251", "en", None),
        ("<?xml version='1.0' encoding='koi8-r'?>", "koi8_r", "en", "cp1251"),
        ('<html><head><meta charset="windows-1251"/></head>', "cp1251", "en", None),
        ('<meta http-equiv="x" content="text/html; charset=cp866">', "cp866", "en", None),
        ("", "cp1251", "ru", None),
        ("", "cp866", "en", "cp866"),
        ('<?xml version="1.0" encoding="utf-8"?>', "cp1251", "en", "cp1251"),
        ('<?xml version="1.0" encoding="utf-8"?>', "utf-8", "ru", "cp1251"),
        ('<?xml version="1.0" encoding="utf-16"?>', "utf-16-le", "ru", None),
        ('<?xml version="1.0" encoding="utf-16"?>', "utf-16", "ru", "cp1251"),
        ('<?xml version="1.0" encoding="nonsense"?>', "utf-8", "en", None),
        ('<meta charset="iso-8859-1">', "utf-8", "en", None),
        ('<?xml version="1.0" encoding="koi8-r"?>', "utf-8", "ru", "cp1251"),
    ],
)
def test_a_chapter_is_read_as_declared_or_stated_or_in_its_language(before, codec, language, encoding):
    page = f"{before}<body><p>{RUSSIAN * 9}</p></body>".encode(codec)
    assert epub.parse(chapters(("text/html", page)), language, encoding).text == RUSSIAN * 9


@pytest.mark.parametrize(
    "ruby",
    [
        "<ruby>漢<rt>かん</rt>字<rt>じ</rt></ruby>",
        "<ruby>漢<rt>かん<rt></ruby>字",
        "<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rp>(</rp><rt>じ</rt><rp>)</rp></ruby>",
        "<ruby><rb>漢</rb><rb>字</rb><rt>かん</rt><rt>じ</rt></ruby>",
        "<ruby><rb>漢<rb>字<rtc><rt>かん<rt>じ</rtc></ruby>",
        "<ruby>漢字<rt>かん<b>じ</b></rt></ruby>",
    ],
)
def test_readings_are_no_part_of_a_word(ruby):
    book = epub.parse(chapters(("text/html", f"<p>{ruby}を学ぶ。</p><p>次。</p>".encode())))
    assert book.text == "漢字を学ぶ。\n次。"
    assert book.passed["readings"] > 0


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<figure><blockquote><p>A poem.</p></blockquote></figure><p>B.</p>", "A poem.\nB."),
        ("<p><![CDATA[a < b]]></p>", "a < b"),
        ("<h:p>One.</h:p><h:p>Two.</h:p>", "One.\nTwo."),
        ("Plain text\nof a page.\n\nMore.", "Plain text of a page.\nMore."),
        ("<html><head><title>x</title><body><p>A head without an end.</p></body></html>", "A head without an end."),
        ("<center>One</center><summary>Two</summary><hgroup><h1>3</h1></hgroup>Four", "One\nTwo\n3\nFour"),
        ("<p>これは長い\n文章です。\r\n“改行”\nがあります。</p>", "これは長い文章です。“改行”があります。"),
        ('<?xml version="1.0"?><!DOCTYPE html [<!ENTITY a "b">]><p>A.</p>', "A."),
        ("<p>A.</p><video><p>Your reader shows no films.</p></video><audio>Nor plays</audio>", "A."),
        ("<nav><ol><li>One</li></ol></nav><h1>One</h1>", "One"),
    ],
)
def test_all_text_of_a_page_is_read(page, text):
    assert epub.parse(chapters(("text/html", page.encode()))).text == text


@pytest.mark.parametrize(
    ("marked", "text", "counted"),
    [
        ('lamp<span class="pageno">13</span>light', "lamplight", "numbers of pages"),
        ('the <span class="x pagenum">[Pg 12]</span>sea', "the sea", "numbers of pages"),
        ('the <span class="pagenum"><a id="p">xiv</a></span>sea', "the sea", "numbers of pages"),
        ('1990<sup class="fnanchor">1</sup> here', "1990 here", "numbers of notes"),
        ('lamp<span class="x-ebookmaker-pageno" title="13">13</span>light', "lamplight", "numbers of pages"),
        ('word<a class="footnote_anchor">1</a> here', "word here", "numbers of notes"),
        ('word<sup><a href="#n1">1</a></sup> here', "word here", "numbers of notes"),
        ('word<a href="notes.xhtml#n1"><sup>*</sup></a> here', "word here", "numbers of notes"),
        ('word<a href="#n1">[1]</a> here', "word here", "numbers of notes"),
        ('10<sup id="a">6</sup> m<sup>2</sup>, see <a href="#p12">12</a>', "10^6 m2, see 12", None),
        ('<span class="linenum">10</span>Arms I sing', "Arms I sing", "numbers of lines"),
        ('<i class="overflow-hidden">seen</i> <span class="hidden">not this</span>', "seen", "hidden parts"),
        ('seen <span style="color: red; display: none"><b>not</b> this</span>', "seen", "hidden parts"),
        ('seen<div hidden=""><div>not</div><p>this</p></div>', "seen", "hidden parts"),
        ('the <span epub:type="pagebreak">harbour</span> sea', "the harbour sea", None),
    ],
)
def test_a_mark_by_its_class_goes_and_a_word_stays(marked, text, counted):
    passed = Counter[str]()
    assert epub.paragraphs(f"<p>{marked}</p>", passed) == [text]
    assert +passed == ({counted: 1} if counted else {})
