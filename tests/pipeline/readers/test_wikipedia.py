import bz2
import gzip
import itertools
import pickle
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import readers
from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError, InputError
from pipeline.readers import Document, FileRange, ReadLog, notes_of, open_corpus, wikipedia
from tests.support import finished
from tests.support.refusals import refused

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">
  <siteinfo>
    <dbname>xxwiki</dbname>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Diskusjon</namespace>
      <namespace key="6" case="first-letter">Pictura</namespace>
      <namespace key="14" case="first-letter">Ordo</namespace>
    </namespaces>
  </siteinfo>
"""
TAIL = "</mediawiki>\n"


def revision(text, timestamp="2020-01-01T00:00:00Z", model="wikitext"):
    return (
        f"<revision><id>7</id><timestamp>{timestamp}</timestamp><contributor><id>9</id>"
        f"</contributor><model>{model}</model><text>{text}</text></revision>"
    )


def page(number, *revisions, namespace=0, more=""):
    ns = "" if namespace is None else f"<ns>{namespace}</ns>"
    return f"  <page>\n    <title>T{number}</title>{ns}<id>{number}</id>{more}\n    {''.join(revisions)}\n  </page>\n"


PAGES = [page(number, revision(f"Text of {number}. " * (number % 7 + 1))) for number in range(40)]
DUMP = (HEAD + "".join(PAGES) + TAIL).encode()


def multistream(pages_a_stream):
    """As Wikimedia packs its dumps: the header, groups of pages and the end are streams."""
    groups = [PAGES[at : at + pages_a_stream] for at in range(0, len(PAGES), pages_a_stream)]
    return b"".join(bz2.compress(part.encode()) for part in [HEAD, *map("".join, groups), TAIL])


def reader(path, **settings):
    config = CorpusConfig(name="wiki", reader="wikipedia", path=str(path), **settings)
    return wikipedia.Reader(config, "")


def read(path, split_bytes=1 << 40):
    tally = ReadLog()
    corpus = reader(path)
    splits = corpus.splits(split_bytes)
    return [document for split in splits for document in corpus.read(split, tally)], tally


def write(folder, data, name="dump.xml"):
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.parametrize("pack", [bytes, bz2.compress, gzip.compress, lambda _: multistream(7)])
def test_every_packing_gives_the_same_documents(pack, tmp_path):
    documents, tally = read(write(tmp_path, pack(DUMP)))
    assert [document.id for document in documents] == [f"wiki:{n}" for n in range(40)]
    assert documents[2] == Document("wiki:2", "Text of 2. Text of 2. Text of 2.", title="T2")
    assert not tally


def pbzip2(size):
    """As parallel packers cut: anywhere, in the middle of tags too."""
    return b"".join(bz2.compress(DUMP[at : at + size]) for at in range(0, len(DUMP), size))


PACKED = {"plain": DUMP, "pages": multistream(1), "groups": multistream(7), "anywhere": pbzip2(101)}


@given(packing=st.sampled_from(sorted(PACKED)), cuts=st.lists(st.integers(0, 99_999), max_size=8))
def test_each_page_comes_out_once_for_any_cuts(tmp_path_factory, packing, cuts):
    data = PACKED[packing]
    path = write(tmp_path_factory.getbasetemp(), data, packing)
    bounds = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    corpus, tally = reader(path), ReadLog()
    drawn = [FileRange(str(path), start, end) for start, end in itertools.pairwise(bounds)]
    for splits in (drawn, corpus.splits(64 + max((0, *cuts)) % 5000)):
        found = [document.id for split in splits for document in corpus.read(split, tally)]
        assert found == [f"wiki:{number}" for number in range(40)]


FAULTS = {"a control character": "\b", "its reference": "&#8;", "an entity": "&nbsp;", "a bare sign": "a & b"}
FAULTS |= {"a tag": "<br>", "no letters": b"\xff\xfe"}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
@pytest.mark.parametrize("split_bytes", [400, 1 << 40])
def test_a_page_that_is_no_xml_costs_no_other_page(fault, pack, split_bytes, tmp_path):
    bad = FAULTS[fault]
    raw = bad if isinstance(bad, bytes) else bad.encode()
    data = DUMP
    for number in (0, 8, 9, 39):
        data = data.replace(b"Text of %d." % number, b"Text" + raw + b"of.")
    path = write(tmp_path, pack(data))
    with pytest.raises(InputError, match="not well-formed XML"):
        read(path)
    tally, corpus = ReadLog("skip"), reader(path)
    found = [document.id for split in corpus.splits(split_bytes) for document in corpus.read(split, tally)]
    assert found == [f"wiki:{number}" for number in range(40) if number not in (0, 8, 9, 39)]
    assert tally == {"broken": 4}
    assert all(str(path) in said for said in tally.broken)


@pytest.mark.parametrize("end", [-30, -len(TAIL) - 40])
def test_a_dump_without_its_end_is_refused_whatever_may_be_skipped(end, tmp_path):
    path = write(tmp_path, DUMP.replace(b"Text of 9.", b"\b")[:end])
    corpus = reader(path)
    (split,) = corpus.splits(1 << 40)
    with pytest.raises(InputError):
        list(corpus.read(split, ReadLog("skip")))


def test_everything_passed_over_is_counted_by_its_reason(tmp_path):
    pages = [page(1, revision("Text.")), page(2, revision("Talk."), namespace=1), page(6, revision("")), page(8)]
    pages += [page(3, revision("#REDIRECT [[T1]]"), more='<redirect title="T1" />')]
    pages += [page(4, revision("#redirect [[T1]]")), page(5, revision("a {}", model="css"))]
    pages += [page(7, revision("{{only|a template}}"))]
    documents, tally = read(write(tmp_path, HEAD + "".join(pages) + TAIL))
    assert [document.id for document in documents] == ["wiki:1"]
    assert tally == {"namespace": 1, "redirect": 2, "model": 1, "empty": 3}


def test_pages_of_scans_are_read_in_place_of_what_transcludes_them(tmp_path):
    scan = "&lt;noinclude&gt;&lt;pagequality level='4' user='U' /&gt;Gone.&lt;/noinclude&gt;%s&lt;noinclude/&gt;"
    pages = [
        page(1, revision("{{header}}\n&lt;pages index='A.djvu' from=1 to=2 /&gt;")),
        page(2, revision(scan % "It was old. The har-", model="proofread-page"), namespace=104),
        page(3, revision(scan % "bour fell. It was new.", model="proofread-page"), namespace=104),
    ]
    documents, tally = read(write(tmp_path, HEAD + "".join(pages) + TAIL))
    assert [(one.id, one.text) for one in documents] == [("wiki:2", "It was old."), ("wiki:3", "It was new.")]
    assert tally == {"transcluded": 1}
    assert tally.notes == {"sentences left out that lack the next page": 2}


def test_a_page_names_itself(tmp_path):
    documents, _ = read(write(tmp_path, HEAD + page(1, revision("{{PAGENAME}} is a town.")) + TAIL))
    assert documents[0].text == "T1 is a town."


@pytest.mark.parametrize("reader_name", ["wikipedia", "wikiextractor"])
def test_what_becomes_of_holes_is_one_of_two_words(reader_name, tmp_path):
    path = str(write(tmp_path, DUMP))
    with refused(ConfigError, "leave_out or keep", key="corpus.options.holes"):
        open_corpus(CorpusConfig(name="w", reader=reader_name, path=path, options={"holes": "no"}), "")


def test_the_newest_revision_counts_wherever_it_stands(tmp_path):
    revisions = [revision(f"Of {year}.", f"{year}-01-01T00:00:00Z") for year in (2019, 2021, 2020)]
    documents, _ = read(write(tmp_path, HEAD + page(1, *revisions) + TAIL))
    assert [document.text for document in documents] == ["Of 2021."]


def test_old_dumps_tell_the_namespace_by_the_title_only(tmp_path):
    talk = page(2, revision("Talk."), namespace=None).replace("T2", "Diskusjon:T1")
    titled = page(3, revision("Text."), namespace=None).replace("T3", "Alien: Part 3")
    documents, tally = read(write(tmp_path, HEAD + talk + titled + TAIL))
    assert ([document.id for document in documents], tally) == (["wiki:3"], {"namespace": 1})


def test_the_dump_names_its_own_namespaces(tmp_path):
    text = "[[Pictura:A.jpg|thumb|b]]Text.[[Ordo:C]]"
    documents, _ = read(write(tmp_path, HEAD + page(1, revision(text)) + TAIL))
    assert documents[0].text == "Text."


def test_utf16_is_read_in_one_part(tmp_path):
    documents, _ = read(write(tmp_path, DUMP.decode().encode("utf-16")), 1000)
    assert len(documents) == 40


def test_indices_beside_a_dump_are_passed_by(tmp_path):
    write(tmp_path, multistream(7), "xx-multistream.xml.bz2")
    write(tmp_path, bz2.compress(b"1:2:T"), "xx-multistream-index.txt.bz2")
    assert len(read(tmp_path)[0]) == 40


@pytest.mark.parametrize("seed", range(4))
def test_a_limit_chooses_among_dumps_alone(seed, tmp_path):
    write(tmp_path, multistream(7), "xx-multistream.xml.bz2")
    write(tmp_path, bz2.compress(b"1:2:T" * 999), "xx-multistream-index.txt.bz2")
    splits = reader(tmp_path, limit="10", limit_seed=seed).splits(10**6)
    assert {Path(split.path).name for split in splits} == {"xx-multistream.xml.bz2"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (HEAD + PAGES[0] + "<page><title>A & B</title></page>" + TAIL, r"line 15.*with id 0"),
        (HEAD + PAGES[0], "no element found: line 15"),
        (HEAD + PAGES[0][:-20], "unclosed token: line 13, column 151"),
        ("<html><body></body></html>", "HTML page"),
        ("plain words", "line 1, column 0"),
        ("<page><title>A</title></page>", "line 1: .*<page>"),
    ],
)
def test_broken_xml_is_an_error_with_its_place(data, message, tmp_path):
    path = write(tmp_path, data)
    with refused(InputError, message, path=str(path)):
        read(path)


@pytest.mark.parametrize("cut", [1, 9, 40, 300, 1000, len(bz2.compress(TAIL.encode()))])  # the last: a whole stream
@pytest.mark.parametrize("split_bytes", [300, 500, 1 << 40])
@pytest.mark.parametrize("packing", ["plain", "groups", "pages"])
def test_no_truncated_dump_reads_as_whole(packing, split_bytes, cut, tmp_path):
    data = PACKED[packing].rstrip()
    with pytest.raises(InputError, match=r"dump\.xml: "):
        read(write(tmp_path, data[:-cut]), split_bytes)


@pytest.mark.parametrize("begin", ["\x01", HEAD])
def test_xml_broken_by_a_damaged_block_is_reported_as_damage(begin, tmp_path):
    """What a block unpacks to is handed out before its checksum is compared."""
    data = bytearray(bz2.compress(f"{begin}<page><title>A</page>".encode()))
    with pytest.raises(InputError, match=r"bzip2 -t .*dump\.xml"):
        read(write(tmp_path, bytes(data)))
    data[12] ^= 1  # of the block's checksum
    with pytest.raises(InputError, match=r"dump\.xml: damaged"):
        read(write(tmp_path, bytes(data)))


def test_the_reader_travels_to_workers(tmp_path):
    path = write(tmp_path, DUMP)
    corpus = reader(path)
    first = list(corpus.read(FileRange(str(path), 0, len(DUMP)), ReadLog()))
    copy = pickle.loads(pickle.dumps(corpus))
    assert list(copy.read(FileRange(str(path), 0, len(DUMP)), ReadLog())) == first


@pytest.mark.slow
def test_memory_is_flat_in_the_size_of_the_dump(tmp_path):
    def peak(pages):
        data = HEAD + "".join(page(n, revision("Some text. " * 500)) for n in range(pages)) + TAIL
        path = write(tmp_path, bz2.compress(data.encode()))
        tracemalloc.start()
        for document in reader(path).read(FileRange(str(path), 0, 1 << 40), ReadLog()):
            assert document.text
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)  # what is loaded once
    assert peak(2000) < peak(500) + 2_000_000


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "documents", "total"),
    [
        ("enwiki-201605-p10p30302-shortened.xml.bz2", 106, 206),
        ("enwiki-table-markup.xml.bz2", 5, 5),
        ("mwxml-dump.xml", 1, 2),
        ("bgwiki-latest-pages-articles-shortened.xml.bz2", 1, 3),
        ("nlwiki-20140927-pages-articles-sample.xml", 19, 21),
        ("viwiki-20240701-excerpt.xml", 129, 601),
        ("aawiki-20260101-pages-meta-current.xml.bz2", 0, 507),
        ("dumpster-dive-smallwiki.xml", 895, 2004),
    ],
)
def test_real_dumps_account_for_every_page(shared_data, name, documents, total):
    found, tally = read(shared_data / "wiki_xml" / name)
    assert (len(found), len(found) + tally.total()) == (documents, total)


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["json-wikipedia-redirect.xml", "wikihadoop-page_sample-history.xml"])
def test_real_malformed_files_are_errors(shared_data, name):
    path = shared_data / "wiki_xml" / name
    with refused(InputError, "<page>", path=str(path), line=1):
        read(path)


@pytest.mark.parametrize(
    ("name", "date"),
    [("viwiki-20260901-pages.xml", ", 20260901"), ("viwiki-latest-pages.xml", ", 20261101"), ("x.xml", "")],
)
def test_a_dump_says_its_wiki_and_its_date(tmp_path, name, date):
    (tmp_path / name).write_text(
        "<mediawiki><siteinfo><base>https://vi.wikipedia.org/wiki/X</base></siteinfo></mediawiki>"
    )
    urls = [f"https://x/viwiki/{day}/viwiki-{day}-{kind}.xml" for kind, day in (("a", 20250101), ("pages", 20261101))]
    finished.manifest("download", files={name: {}}, figures={"files": [{"url": url} for url in urls]}).write(tmp_path)
    corpus = CorpusConfig(name="w", reader="wikipedia", path=str(tmp_path / name))
    mix = CorpusConfig(name="m", reader="mix", parts={"a": {"reader": "wikipedia", "path": corpus.path}})
    assert dict(notes_of(open_corpus(corpus, "").splits(10**6))) == {f"dumps of vi.wikipedia.org{date}": 1}
    assert dict(notes_of(open_corpus(mix, "").splits(10**6))) == {f"a: dumps of vi.wikipedia.org{date}": 1}


# Readers keep the title of a document where its format has one.


WORDS = "\nA line of the text that follows.\n"


@pytest.mark.parametrize(
    ("reader", "name", "text", "title"),
    [
        ("wikiextractor", "wiki_00", f'<doc id="1" title="A &amp; B">\nA & B\n{WORDS}</doc>\n', "A & B"),
        ("books", "a.md", f"# Under the Sea\n{WORDS}", "Under the Sea"),
        ("books", "a.md", f"# Title: Under the Sea\n\n## Author: A\n{WORDS}", "Under the Sea"),
        ("books", "a.txt", f"Title: Under the Sea\n{WORDS}", "Under the Sea"),
        ("books", "a.txt", WORDS, ""),
        ("jsonl", "a.jsonl", '{"text": "A line.", "title": "Under the Sea"}\n', "Under the Sea"),
        ("jsonl", "a.jsonl", '{"text": "A line.", "title": 7}\n', "7"),
        ("jsonl", "a.jsonl", '{"text": "A line.", "title": true}\n', ""),
    ],
)
def test_a_title_is_kept(tmp_path, reader, name, text, title):
    (tmp_path / name).write_text(text)
    opened = readers.open_corpus(CorpusConfig(name="x", reader=reader, path=str(tmp_path / name)), "")
    (file_range,) = opened.splits(1 << 40)
    assert [document.title for document in opened.read(file_range, readers.ReadLog())] == [title]
