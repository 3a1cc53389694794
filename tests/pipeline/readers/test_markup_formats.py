"""Pages, web archives, ZIM, PubMed, JATS and TEI: what is prose in them."""

import gzip
import io
import re

import pytest
import zstandard
from lxml import etree
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pipeline.errors import InputError
from tests.pipeline.readers.reading import config, read
from tests.support.formats import TEXTS, write
from tests.support.refusals import refused


def test_records_of_a_wet_file_are_those_of_warcio(tmp_path):
    path = write(tmp_path, "wet")
    with path.open("rb") as file:
        wanted = [
            (record.rec_headers["WARC-Target-URI"], record.content_stream().read().decode())
            for record in ArchiveIterator(file)
            if record.rec_type == "conversion"
        ]
    found, log = read(config("warc", path))
    assert ([(document.id, document.text) for document in found], log) == (wanted, {"metadata": 1})


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_file_of_zstd_is_read_with_and_without_a_dictionary(dictionary, tmp_path):
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


def response(kind, body, status="200 OK", **headers):
    held, named = io.BytesIO(), [("Content-Type", kind), *((k.replace("_", "-"), v) for k, v in headers.items())]
    writer = WARCWriter(held, gzip=True)
    http = StatusAndHeaders(status, named, protocol="HTTP/1.1")
    writer.write_record(
        writer.create_warc_record("https://e.example/", "response", io.BytesIO(body), len(body), http_headers=http)
    )
    return held.getvalue()


SAID = "A café of many words, said the keeper."
PAGE = f"<html><body><p>{SAID}</p></body></html>"
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(PAGE.encode()), PAGE.encode())


def test_pages_among_responses_are_read_in_their_encoding(tmp_path):
    records = [
        response("text/html; charset=ISO-8859-1", PAGE.encode("latin-1")),
        response("text/html", gzip.compress(PAGE.encode()), Content_Encoding="gzip"),
        response("text/html", PAGE.replace("<body>", "<meta charset=windows-1252><body>").encode("cp1252")),
        response("TEXT/HTML", zstandard.compress(PAGE.encode()), Content_Encoding="zstd"),
        response("text/html", CHUNKED, Transfer_Encoding="chunked"),
        response("image/png", b"\x89PNG"),
        response("text/html", b"", "301 Moved"),
    ]
    (tmp_path / "a.warc.gz").write_bytes(b"".join(records))
    found, log = read(config("warc", tmp_path))
    assert [document.text for document in found] == [SAID] * 5
    assert log == {"other media": 1, "status": 1}


@pytest.mark.parametrize(
    "said", [{"Content_Encoding": "gzip"}, {"Transfer_Encoding": "chunked"}, {"Content_Encoding": "of none"}]
)
def test_a_page_that_a_crawler_decoded_is_read_whatever_its_headers_say(said, tmp_path):
    (tmp_path / "a.warc.gz").write_bytes(
        response("text/html", PAGE.encode(), **said) + response("text/html", PAGE.encode())
    )
    found, _ = read(config("warc", tmp_path))
    assert [document.text for document in found] == [SAID] * 2


@pytest.mark.parametrize("first", [b"", b"\n", b"HTTP/1.1  200\n", b"http/1.1 200 ok\n", b"ICY 200 OK\n"])
def test_headers_are_headers_whatever_ends_and_begins_their_lines(first, tmp_path):
    plain = gzip.decompress(response("text/html; charset=utf-8", PAGE.encode()))
    head, body = plain[: plain.index(b"HTTP/")], plain[plain.index(b"HTTP/") :].rstrip()
    http, _, page = body.partition(b"\r\n\r\n")
    http = first + http.partition(b"\r\n")[2] if first.strip() else first + http
    body = http.replace(b"\r\n", b"\n") + b"\n\n" + page
    head = re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(body), head)
    (tmp_path / "a.warc").write_bytes(head + body + b"\r\n\r\n")
    assert [document.text for document in read(config("warc", tmp_path))[0]] == [SAID]


def test_a_record_without_a_name_has_its_number(tmp_path):
    plain = gzip.decompress(response("text/html", PAGE.encode()))
    (tmp_path / "a.warc").write_bytes(re.sub(rb"WARC-(?:Record-ID|Target-URI).*\r\n", b"", plain))
    assert [document.id for document in read(config("warc", tmp_path))[0]] == [f"{tmp_path}/a.warc record 1"]


def test_pages_that_were_put_into_an_archive_as_files_are_pages(tmp_path):
    with (tmp_path / "a.warc").open("wb") as file:
        writer = WARCWriter(file, gzip=False)
        for kind, body in (("text/html; charset=cp1252", PAGE.encode("cp1252")), ("image/png", b"\x89PNG")):
            record = writer.create_warc_record("file:/a", "resource", io.BytesIO(body), len(body), kind)
            writer.write_record(record)
    found, log = read(config("warc", tmp_path))
    assert ([document.text for document in found], log) == ([SAID], {"other media": 1})


def test_a_page_that_cannot_be_decoded_is_skipped_and_the_next_is_read(tmp_path):
    damaged = response("text/html", b"\x8b\x0f\x00abc\xff", Content_Encoding="br")
    (tmp_path / "a.warc.gz").write_bytes(damaged + response("text/html", PAGE.encode()))
    found, log = read(config("warc", tmp_path, on_error="skip"))
    assert (len(found), log["broken"]) == (1, 1)


@pytest.mark.parametrize("form", ["wet", "plain wet"])
def test_a_web_archive_cut_off_within_a_record_is_an_error(form, tmp_path):
    path = write(tmp_path, form, TEXTS[:2])
    raw = path.read_bytes()
    for size in range(1, len(raw), 7):
        path.write_bytes(raw[:size])
        if raw[size:].lstrip(b"\r\n")[:3] in (b"", b"WAR", b"\x1f\x8b\x08"):  # between two records
            continue
        with pytest.raises(InputError):
            read(config("warc", path))


POWER = "<math><msup> <mrow> <mn>10</mn> </mrow> <mn>6</mn></msup> <mn>5</mn><mfrac><mn>1</mn><mn>2</mn></mfrac></math>"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<body><h1>H</h1><p>A <b>bold</b> wo<i>rd</i>.<br>At <time>8</time>.</p></body>", "H\nA bold word.\nAt 8."),
        ("<body><p>Before.</p><ul><li>one</li><li>two</li></ul></body>", "Before.\none\ntwo"),
        ("<p>a</p><figure><img alt='ALT'><figcaption>Caption</figcaption></figure>", "a\nCaption"),
        ("<body><nav>Menu</nav><p>A &amp; b.</p><footer>Imprint</footer><script>x=1</script></body>", "A & b."),
        ("Only text &amp;\nlines.", "Only text &\nlines."),
        ("<b>10</b><SUP>6</SUP> m<sup>2</sup> 5<sup class='mw-ref'>1</sup> <a class='reference'>A</a>", "10^6 m2 5 A"),
        ("9<sup><a href='#'>3</a>,<a href='#'>4</a></sup> 1<a href='#'><sup>4</sup></a> 2<sup><a href=b>6", "9 1 2^6"),
        ("<p><time>5</time> a <math><msub><mn>1</mn>2</msub><msqrt>5</msqrt></math>, <time>1</time>", "5 a 1_2√5, 1"),
        ('<?xml v="1"?><d><time t="" /><s>One.</s><br/><script s=""/><c><![CDATA[Two]]></c></d>', "One.\nTwo"),
        ("<p><ruby>漢<rp>(</rp><rt>かん</rt></ruby>、<b>字</b>5<i>&euro;</i><i>\uf00c</i><i>¶</i>。</p>", "漢、字5€。"),
        ("<details><summary><img alt='S'>um</summary>Of <legend>all</legend>it.</details>", "Sum\nOf all\nit."),
        ("<p>Let <math><mi>x</mi><annotation>{\\displaystyle x}</annotation></math> be.</p>", "Let x be."),
        (f"{POWER} <math><msubsup><mn>1</mn><mn>2</mn><mn>3</mn></msubsup></math>.", "10^6 5 1/2 1_2^3."),
    ],
)
def test_the_prose_of_a_page(page, text, tmp_path):
    (tmp_path / "a.html").write_text(page, "utf-8")
    assert [document.text for document in read(config("html", tmp_path))[0]] == [text]


def test_html_in_rows_is_read_or_noted(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "<p>One &lt; two.</p><p>Three.</p>"}')
    found, log = read(config("jsonl", tmp_path))
    assert ["corpus.options.html=true" in note for note in log.notes] == [True]
    found, log = read(config("jsonl", tmp_path, options={"html": True}))
    assert found[0].text == "One < two.\nThree."
    assert not log.notes


def test_an_alias_in_a_zim_file_is_no_second_page(tmp_path):
    found, log = read(config("zim", write(tmp_path, "zim")))
    assert [document.id for document in found] == [f"c:page{n}" for n in range(len(TEXTS))]
    assert log["redirect"] >= 1


# PubMed, JATS and TEI: what is prose in them, held to lxml.


RECORD = """<PubmedArticle><MedlineCitation Status="MEDLINE"><PMID Version="{version}">{pmid}</PMID><Article>
<ArticleTitle>Role of <i>p53</i> in CO<sub>2</sub> &amp; H<sub>2</sub>O.</ArticleTitle>{abstract}</Article>
<CommentsCorrectionsList><CommentsCorrections RefType="Cites"><PMID>1</PMID></CommentsCorrections>
</CommentsCorrectionsList></MedlineCitation></PubmedArticle>"""
ABSTRACT = """<Abstract><AbstractText Label="BACKGROUND">Cells of <b>mice</b> grow.</AbstractText>
<AbstractText Label="RESULTS">Of <mml:math xmlns:mml="http://www.w3.org/1998/Math/MathML"><mml:mi>x</mml:mi></mml:math>
none.</AbstractText><CopyrightInformation>Copyright X.</CopyrightInformation></Abstract>
<OtherAbstract><AbstractText>Zellen wachsen.</AbstractText></OtherAbstract>"""


def test_a_record_of_pubmed_is_its_title_and_the_parts_of_its_abstract(tmp_path):
    path = tmp_path / "pubmed25n0001.xml"
    records = RECORD.format(pmid=7, version=1, abstract=ABSTRACT) + RECORD.format(pmid=8, version=2, abstract="")
    deleted = "<DeleteCitation><PMID>3</PMID><PMID>4</PMID></DeleteCitation>"
    path.write_text(f"<!DOCTYPE PubmedArticleSet>\n<PubmedArticleSet>{records}{deleted}</PubmedArticleSet>")
    (whole, title), log = read(config("pubmed", path))
    assert whole.id == "pubmed:7"
    assert whole.text == "Role of p53 in CO2 & H2O.\nCells of mice grow.\nOf x none."
    assert (title.id, title.text) == ("pubmed:8.2", whole.title) == ("pubmed:8.2", "Role of p53 in CO2 & H2O.")
    ((note, count),) = log.notes.items()
    assert "DeleteCitation" in note
    assert count == 2
    tree = etree.parse(path)
    wanted = tree.xpath("//Article/ArticleTitle | //Article/Abstract/AbstractText")
    said = [" ".join("".join(each.itertext()).split()) for each in wanted]
    assert "\n".join([whole.text, title.text]).split("\n") == said


def test_a_record_of_pubmed_without_a_title_has_none(tmp_path):
    record = re.sub("(?<=<ArticleTitle>).*(?=</ArticleTitle>)", "", RECORD).format(pmid=7, version=1, abstract=ABSTRACT)
    (tmp_path / "a.xml").write_text(f"<PubmedArticleSet>{record}</PubmedArticleSet>")
    assert [document.title for document in read(config("pubmed", tmp_path / "a.xml"))[0]] == [""]


@pytest.mark.parametrize(("said", "text"), [
    ("10<sup>6</sup>/L, m<sup>2</sup>, 5<sup>1</sup>/<sub>2</sub>, 1F<sub>16</sub>.", "10^6/L, m2, 5 1/2, 1F_16."),
    ("SO<sub>4</sub><sup>2-</sup>, 3d<sup>10</sup>4s<sup>2</sup> and 101<sub>2</sub>.", "SO4^2-, 3d10 4s2 and 101_2."),
    ("The rate<disp-formula>x</disp-formula>in all <disp-formula>y</disp-formula>.", "The rate in all."),
    (rf"At <inline-formula><tex-math>\no{{x}}</tex-math>{POWER}</inline-formula> <tex-math>$x$</tex-math> it is. "
     "It is <inline-graphic/>. So (<inline-graphic/>).", "At 10^6 5 1/2 x it is. So."),
    ("al. [<xref ref-type='bibr'>1</xref>]. (<xref ref-type='bibr'/>, as A; <xref ref-type='bibr'/>)", "al. (as A)")]
)  # fmt: skip
def test_exponents_stay_and_words_around_a_formula_are_apart(said, text, tmp_path):
    path = tmp_path / "a.xml"
    path.write_text(f"<article><body><p>{said}</p></body></article>", "utf-8")
    assert read(config("jats", path))[0][0].text == text


def test_a_record_that_breaks_off_is_named_by_the_one_before(tmp_path):
    path = tmp_path / "a.xml"
    path.write_text(f"<PubmedArticleSet>{RECORD.format(pmid=7, version=1, abstract='')}<PubmedArticle>")
    with refused(InputError, "after record 7", path=str(path)):
        read(config("pubmed", path))


ARTICLE = """<?xml version="1.0"?><!DOCTYPE article PUBLIC "-//NLM//DTD JATS (Z39.96)" "a.dtd">
<article xmlns:xlink="http://www.w3.org/1999/xlink"><front><journal-meta><journal-title>J</journal-title></journal-meta>
<article-meta><title-group><article-title>On<break/><italic>E. coli</italic></article-title></title-group>
<abstract><title>Abstract</title><p>Short &#x3b1;.</p></abstract></article-meta></front><body>
<sec><label>1.</label><title>Methods</title><p>As said by <xref ref-type="bibr" rid="b0">Ray (2004)</xref> (<xref
ref-type="bibr" rid="b0">Ray, 2004</xref>; <xref ref-type="bibr">Lee, 2005</xref>) [<xref ref-type="bibr">1</xref>,
<xref ref-type="bibr" rid="b2">2</xref>], and shown<sup><xref ref-type="bibr" rid="b3">3</xref></sup> (<xref
ref-type="fig" rid="f1">Fig. 1</xref>):<list><list-item><p>One.</p></list-item><list-item><p>Two.</p></list-item></list>
then three.<fig id="f1"><caption><p>A figure.</p></caption></fig></p>
<table-wrap><table><tr><td>9</td></tr></table></table-wrap></sec></body>
<back><ref-list><ref>Ref.</ref></ref-list></back><sub-article/></article>"""


def test_an_article_is_its_title_abstract_and_body(tmp_path):
    (tmp_path / "PMC1.nxml").write_text(ARTICLE)
    (article,), log = read(config("jats", tmp_path))
    assert article.text.split("\n") == [
        "On E. coli", "Abstract", "Short α.", "Methods",
        "As said by Ray (2004), and shown (Fig. 1):", "One.", "Two.", "then three.",
    ]  # fmt: skip
    noted = {note.split()[0]: count for note, count in log.notes.items()}
    assert noted == {"tables": 1, "figures": 1, "references": 2, "translations": 1}


def tei(body, head="<teiHeader><fileDesc><p>About.</p></fileDesc></teiHeader>"):
    return f'<TEI xmlns="http://www.tei-c.org/ns/1.0">{head}<text><body>{body}</body></text></TEI>'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<head>I.</head><p>A <hi>wo</hi>rd.</p><lg><l>One,</l><l>two.</l></lg>", "I.\nA word.\nOne,\ntwo."),
        ("<p>It was<note>A note <p>of two</p></note> late.</p>", "It was late."),
        ("<p>a win<pb n='2'/>dow and<pb/> a har<lb break='no'/>bour</p>", "a window and a harbour"),
        ("<p>a har-<lb break='no'/>\nbour</p>", "a harbour"),
        ("<p>a win¬<lb/>\ndow, news⸗<lb/>paper</p>", "a window, newspaper"),
        ("<p>one<lb/>two<lb/>\nthree</p>", "one two three"),
        ("<p>the har-<lb/>bour, a harbour; well-<lb/>known</p>", "the harbour, a harbour; well-known"),
        ("<p>a <sic>teh</sic> <choice><orig>olde</orig> <reg>old</reg></choice> house</p>", "a teh old house"),
        ("<p><choice><sic>teh</sic><corr>the</corr></choice> <choice><abbr>D</abbr><expan>Doctor</expan></choice></p>",
         "the Doctor"),
        ("<p>An <app><lem>old</lem><rdg>o</rdg></app> cat <app><rdgGrp><rdg>sat</rdg><rdg>lay</rdg></rdgGrp></app></p>",
         "An old cat sat"),
        ("<p><ruby><rb>漢字</rb><rt>かんじ</rt></ruby>です</p>", "漢字です"),
        ("<p>Well<desc>laughs</desc> (<cit><quote>so</quote><bibl>I 2</bibl></cit>)</p>", "Well laughs (so I 2)"),
        (f"<orth>1<hi rend='sub'>2</hi><hi rend='sup'>6</hi></orth><pron><formula>{POWER}</formula></pron>",
         "1_2^6 10^6 5 1/2"),
        ("<p>\n<w>cat</w>\n<pc>,</pc>\n<w>can</w><w join='left'>not</w>\n<pc>(</pc>\n<w>x</w>\n<pc>)</pc></p>",
         "cat, cannot (x)"),
        ("<p><s><w>Das</w><w>war</w><w>es</w><pc>,</pc><w>sagte</w><w>er</w><pc>.</pc></s><s><w>Ja</w></s></p>",
         "Das war es, sagte er. Ja"),
        ("<p><w>l'</w><w>homme</w> <w>est</w> <w>là</w></p>", "l'homme est là"),
        ("<div><sp><speaker>Ann</speaker><p>Yes.</p></sp></div>", "Ann\nYes."),
        ("<p><s>One.</s><s>Two,</s> <s>three.</s></p>", "One. Two, three."),
        ("<p><s><w>Das</w><w>war</w><pc>.</pc></s><s><w>Ja</w><w>ja</w></s></p>", "Das war. Ja ja"),
        ("<p><s><w>One</w> <w>is</w><pc>.</pc></s><s><w>Two</w> <w>are</w></s></p>", "One is. Two are"),
        ("<u>One.</u><u>Two.</u><closer><dateline>Rome</dateline><signed>A.</signed></closer>", "One.\nTwo.\nRome\nA."),
    ],
)  # fmt: skip
def test_a_text_in_tei_has_whole_words(body, text, tmp_path):
    (tmp_path / "a.xml").write_text(tei(body), encoding="utf-8")
    assert [document.text for document in read(config("tei", tmp_path))[0]] == [text]


@pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-16", "gb18030", "shift_jis", "euc-jp"])
def test_a_text_in_tei_is_read_in_the_encoding_that_it_declares(encoding, tmp_path):
    said = "村の灯台" if encoding in ("shift_jis", "euc-jp") else "été"
    raw = f'<?xml version="1.0" encoding="{encoding}"?>{tei(f"<p>{said}</p>")}'
    (tmp_path / "a.xml").write_text(raw, encoding=encoding)
    assert [document.text for document in read(config("tei", tmp_path))[0]] == [said]


GREEK = " tw=n lo/gwn" * 20  # in letters of ASCII


def test_a_wrong_declaration_and_a_missing_one_are_noted_and_a_blank_line_before_one_is_none(tmp_path):
    head = '<?xml version="1.0" encoding="utf-8"?>'
    (tmp_path / "a.xml").write_text(head + tei("<p>été</p>"), encoding="latin-1")
    (tmp_path / "b.xml").write_text("\n" + head + tei("<p>b&mdash;</p>"))
    declared = '<!DOCTYPE TEI.2 PUBLIC "x" "y.dtd" [<!ENTITY own "its own">]>'
    (tmp_path / "c.xml").write_text(f"{declared}<TEI.2><text><p>A &stigma; &own; &eacute;{GREEK}</p></text></TEI.2>")
    found, log = read(config("tei", tmp_path))
    assert [document.text for document in found] == ["été", "b—", f"A \ufffd its own é{GREEK}"]
    assert sum(log.notes.values()) == 4


def test_every_text_of_a_corpus_in_tei_is_a_document(tmp_path):
    texts = "".join(tei(f"<p>{n}</p>") for n in range(3))
    (tmp_path / "a.xml").write_text(f'<teiCorpus xmlns="http://www.tei-c.org/ns/1.0"><teiHeader/>{texts}</teiCorpus>')
    (tmp_path / "b.xml").touch()
    found, log = read(config("tei", tmp_path))
    assert [document.text for document in found] == ["0", "1", "2"]
    assert len({document.id for document in found}) == 3
    assert log.notes == {"empty files": 1}


def test_an_article_in_a_namespace_and_in_an_envelope_is_an_article(tmp_path):
    article = ARTICLE.partition('.dtd">')[2] or ARTICLE[ARTICLE.index("<article ") :]
    article = article.replace("<article ", '<article xmlns="https://jats.nlm.nih.gov/ns/archiving/1.3/" ')
    (tmp_path / "a.xml").write_text(f"<OAI-PMH><record><metadata>{article}</metadata></record></OAI-PMH>")
    (found,), _ = read(config("jats", tmp_path))
    assert found.text.startswith("On E. coli\nAbstract")


@pytest.mark.parametrize(
    ("reader", "name", "content", "cure"),
    [
        ("jats", "a.xml", "<TEI><text/></TEI>", "corpus=tei"),
        ("tei", "a.xml", "<PubmedArticleSet/>", "corpus=pubmed"),
        ("pubmed", "a.xml", "<?xml version='1.0'?><article></article>", "corpus=jats"),
        ("wikipedia", "a.xml", "<article></article>", "corpus=jats"),
        ("wikipedia", "a.xml", "WARC/1.0\r\nWARC-Type: warcinfo\r\n", "corpus=warc"),
        ("wikiextractor", "wiki_00", '{"index": {"_id": "1"}}\n{"text": "a"}\n', "corpus=cirrussearch"),
        ("stackexchange", "Posts.xml", "<TEI>\n<text/></TEI>", "corpus=tei"),
        ("tei", "a.xml", "\ufeff<?xml version='1.0'?>\n<posts>\n</posts>", "corpus=stackexchange"),
        ("jsonl", "a.json", '{"index": {"_id": "1"}}\n{"text": "a"}\n', "corpus=cirrussearch"),
        ("cirrussearch", "a.json", '{"text": "a"}\n', "corpus=jsonl"),
        ("pubmed", "a.xml", "PMID- 7\nTI  - Words.\n", "as XML"),
        ("jsonl", "dataset_infos.json", '{"default": {}}\n', r"FOLDER/\*\.jsonl"),
        ("warc", "a.warc", "crawl-data/CC-MAIN-2026-01/a.warc.wet.gz\n", "corpus=warc on the files"),
    ],
)  # fmt: skip
def test_a_file_for_another_reader_says_which(reader, name, content, cure, tmp_path):
    (tmp_path / name).write_text(content)
    with refused(InputError, cure):
        read(config(reader, tmp_path / name))


def test_words_of_tei_are_those_that_lxml_finds(tmp_path):
    body = "".join(
        f"<div><head>Chapter {n}</head><p>The <hi>{n}</hi>th <emph>day</emph>\n of it.</p></div>" for n in range(9)
    )
    (tmp_path / "a.xml").write_text(tei(body))
    ((document,), _), tree = read(config("tei", tmp_path)), etree.parse(tmp_path / "a.xml")
    blocks = tree.xpath("//*[local-name()='head' or (local-name()='p' and ancestor::*[local-name()='body'])]")
    assert document.text.split() == [word for each in blocks for word in "".join(each.itertext()).split()]


def test_what_grobid_writes_is_abstract_and_body(tmp_path):
    head = "<teiHeader><profileDesc><abstract><p>Short.</p></abstract></profileDesc></teiHeader>"
    (tmp_path / "a.tei.xml").write_text(
        tei('<p>As in <ref type="bibr">[3]</ref>, so said <ref type="bibr">Ray</ref>.</p><formula>x\\y</formula>', head)
    )
    (document,), log = read(config("tei", tmp_path))
    assert document.text == "Short.\nAs in, so said Ray."
    assert log.notes == {"references to others left out": 1, "formulas left out": 1}
