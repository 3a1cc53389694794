"""No dump and no wikitext makes anything happen but documents, or one error that names the file."""

import bz2
import gzip

import pytest

from pipeline.config import CorpusConfig
from pipeline.errors import InputError
from pipeline.readers import ReadLog, open_corpus
from pipeline.text.wikitext import Extractor
from tests.security.hostile import damaged, hammer, soup

pytestmark = pytest.mark.fuzz

PAGE = (
    "<page><title>A &amp; b</title><ns>0</ns><id>{0}</id><revision><id>2</id>"
    "<timestamp>2020-01-01T00:00:00Z</timestamp><model>wikitext</model>"
    "<text>'''Words''' of [[page {0}|this]].\n\n{{{{box|a=b}}}} More words.</text>"
    "</revision></page>\n"
)
DUMP = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="en"><siteinfo>'
    '<dbname>enwiki</dbname><namespaces><namespace key="0" /><namespace key="6">File</namespace>'
    "</namespaces></siteinfo>\n" + "".join(map(PAGE.format, range(1, 6))) + "</mediawiki>\n"
).encode()
TAGS = b"<page> </page> <mediawiki> </mediawiki> <ns>x</ns> <redirect/> <id> <revision> </revision> <text> </text>"
TAGS = [*TAGS.split(), *b"<!-- --> <![CDATA[ ]]> &lt; &x; \x00 \xff\xfe \xef\xbb\xbf".split(b" ")]
TAGS += [f'<?xml version="1.0" encoding="{name}"?>'.encode() for name in ("utf-16", "gb2312", "nothing")]
TAGS += [b'<namespace key="x">y</namespace>', b'<!DOCTYPE mediawiki [<!ENTITY x "y">]>']
PLAIN_MARKUP = (
    "[[ ]] {{ }} {| |} |- | '' ''' == # : <ref> </ref> <ref/> <nowiki> </nowiki> <math> </math> <!-- --> "
    "&nbsp; &#0; &#x110000; &#55296; File: Category: -{ }- http://a.b [ ] <div > __TOC__ （ ） <gallery>"
)
MARKUP = [*PLAIN_MARKUP.split(), "\n", "* ", "== References ==\n", "\x00", "\u2028", "\U0001f600"]


def read(path):
    """Every document of a dump, whole and cut into parts, is clean; errors name the file."""
    for size in (1 << 20, 300):
        try:
            corpus = CorpusConfig(name="wiki", reader="wikipedia", path=str(path))
            reader = open_corpus(corpus, "")
            for split in reader.splits(size):
                for document in reader.read(split, ReadLog()):
                    assert document.text.strip()
                    assert "\r" not in document.text
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017


def test_a_damaged_dump_is_read_or_named(tmp_path):
    def check(data):
        path = tmp_path / "dump.xml"
        path.write_bytes(data)
        read(path)

    hammer(check, damaged([DUMP], TAGS))


FAULTS = [(b"<ns>0</ns>", b"<ns>x</ns>"), (b'key="6"', b'key=":"')]
NAMED = [f'<?xml version="1.0" encoding="{name}"?><mediawiki'.encode() for name in ("gb2312", "nothing")]


@pytest.mark.parametrize(("whole", "broken"), [*FAULTS, *((b"<mediawiki", each) for each in NAMED)])
def test_what_was_found_stays_mended(tmp_path, whole, broken):
    path = tmp_path / "dump.xml"
    path.write_bytes(DUMP.replace(whole, broken, 1))
    reader = open_corpus(CorpusConfig(name="wiki", reader="wikipedia", path=str(path)), "")
    with pytest.raises(InputError, match=r"dump\.xml"):
        [list(reader.read(split, ReadLog())) for split in reader.splits(1 << 20)]


@pytest.mark.parametrize("packing", ["bz2", "gz", "multistream"])
def test_a_damaged_packed_dump_is_read_or_named(tmp_path, packing):
    half = DUMP.index(b"<page>", len(DUMP) // 2)
    whole = {
        "bz2": bz2.compress(DUMP),
        "gz": gzip.compress(DUMP, mtime=0),
        "multistream": bz2.compress(DUMP[:half]) + bz2.compress(DUMP[half:]),
    }[packing]

    def check(data):
        path = tmp_path / ("dump.xml.gz" if packing == "gz" else "dump.xml.bz2")
        path.write_bytes(data)
        read(path)

    hammer(check, damaged([whole], [b"BZh91AY&SY", b"\x1f\x8b\x08", b"PK\x03\x04"]))


def test_any_tags_are_read_or_named(tmp_path):
    def check(inside):
        path = tmp_path / "dump.xml"
        path.write_bytes(DUMP.replace(b"</mediawiki>", inside.encode("utf-8", "replace")))
        read(path)

    hammer(check, soup([tag.decode("latin-1") for tag in TAGS] + [PAGE.format(7)]))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_any_markup_gives_lines_of_text(language):
    extractor = Extractor(language)

    def check(wikitext):
        for line in extractor.text(wikitext).split("\n"):
            assert line == line.strip()
            assert not any(character in line for character in "\r\x00\u2028\u2029")

    hammer(check, soup(MARKUP))
