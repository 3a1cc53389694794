"""PubMed, JATS and TEI: what is prose in them, held to lxml."""

from pathlib import Path

import pytest
from lxml import etree

from pipeline.errors import InputError
from tests.pipeline.readers.reading import config, read
from tests.support.refusals import refused

RECORD = """<PubmedArticle><MedlineCitation Status="MEDLINE"><PMID Version="{version}">{pmid}</PMID><Article>
<ArticleTitle>Role of <i>p53</i> in CO<sub>2</sub> &amp; H<sub>2</sub>O.</ArticleTitle>{abstract}</Article>
<CommentsCorrectionsList><CommentsCorrections RefType="Cites"><PMID>1</PMID></CommentsCorrections>
</CommentsCorrectionsList></MedlineCitation></PubmedArticle>"""
ABSTRACT = """<Abstract><AbstractText Label="BACKGROUND">Cells of <b>mice</b> grow.</AbstractText>
<AbstractText Label="RESULTS">Of <mml:math xmlns:mml="http://www.w3.org/1998/Math/MathML"><mml:mi>x</mml:mi></mml:math>
none.</AbstractText><CopyrightInformation>Copyright X.</CopyrightInformation></Abstract>
<OtherAbstract><AbstractText>Zellen wachsen.</AbstractText></OtherAbstract>"""


def test_a_record_of_pubmed_is_its_title_and_the_parts_of_its_abstract(tmp_path: Path) -> None:
    path = tmp_path / "pubmed25n0001.xml"
    records = RECORD.format(pmid=7, version=1, abstract=ABSTRACT) + RECORD.format(pmid=8, version=2, abstract="")
    deleted = "<DeleteCitation><PMID>3</PMID><PMID>4</PMID></DeleteCitation>"
    path.write_text(f"<!DOCTYPE PubmedArticleSet>\n<PubmedArticleSet>{records}{deleted}</PubmedArticleSet>")
    (whole, title), log = read(config("pubmed", path))
    assert whole.id == "pubmed:7"
    assert whole.text == "Role of p53 in CO2 & H2O.\nCells of mice grow.\nOf x none."
    assert (title.id, title.text) == ("pubmed:8.2", "Role of p53 in CO2 & H2O.")
    ((note, count),) = log.notes.items()
    assert "DeleteCitation" in note
    assert count == 2
    tree = etree.parse(path)
    wanted = tree.xpath("//Article/ArticleTitle | //Article/Abstract/AbstractText")
    said = [" ".join("".join(each.itertext()).split()) for each in wanted]
    assert "\n".join([whole.text, title.text]).split("\n") == said


def test_a_record_that_breaks_off_is_named_by_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text(f"<PubmedArticleSet>{RECORD.format(pmid=7, version=1, abstract='')}<PubmedArticle>")
    with refused(InputError, "after record 7", path=str(path)):
        read(config("pubmed", path))


ARTICLE = """<?xml version="1.0"?><!DOCTYPE article PUBLIC "-//NLM//DTD JATS (Z39.96)" "a.dtd">
<article xmlns:xlink="http://www.w3.org/1999/xlink"><front><journal-meta><journal-title>J</journal-title></journal-meta>
<article-meta><title-group><article-title>On <italic>E. coli</italic></article-title></title-group>
<abstract><title>Abstract</title><p>Short &#x3b1;.</p></abstract></article-meta></front><body>
<sec><label>1.</label><title>Methods</title><p>As said by <xref ref-type="bibr" rid="b0">Ray (2004)</xref> (<xref
ref-type="bibr" rid="b0">Ray, 2004</xref>; <xref ref-type="bibr">Lee, 2005</xref>) [<xref ref-type="bibr">1</xref>,
<xref ref-type="bibr" rid="b2">2</xref>], and shown<sup><xref ref-type="bibr" rid="b3">3</xref></sup> (<xref
ref-type="fig" rid="f1">Fig. 1</xref>):<list><list-item><p>One.</p></list-item><list-item><p>Two.</p></list-item></list>
then three.<fig id="f1"><caption><p>A figure.</p></caption></fig></p>
<table-wrap><table><tr><td>9</td></tr></table></table-wrap></sec></body>
<back><ref-list><ref>Ref.</ref></ref-list></back></article>"""


def test_an_article_is_its_title_abstract_and_body(tmp_path: Path) -> None:
    (tmp_path / "PMC1.nxml").write_text(ARTICLE)
    (article,), log = read(config("jats", tmp_path))
    assert article.text.split("\n") == [
        "On E. coli", "Abstract", "Short α.", "Methods",
        "As said by Ray (2004), and shown (Fig. 1):", "One.", "Two.", "then three.",
    ]  # fmt: skip
    assert log.notes == {"tables left out": 1, "figures left out": 1, "references to others left out": 2}


def tei(body: str, head: str = "<teiHeader><fileDesc><p>About.</p></fileDesc></teiHeader>") -> str:
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
        ("<p>\n<w>cat</w>\n<pc>,</pc>\n<w>can</w><w join='left'>not</w>\n<pc>(</pc>\n<w>x</w>\n<pc>)</pc></p>",
         "cat, cannot (x)"),
        ("<div><sp><speaker>Ann</speaker><p>Yes.</p></sp></div>", "Ann\nYes."),
    ],
)  # fmt: skip
def test_a_text_in_tei_has_whole_words(body: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(tei(body), encoding="utf-8")
    assert [document.text for document in read(config("tei", tmp_path))[0]] == [text]


def test_words_of_tei_are_those_that_lxml_finds(tmp_path: Path) -> None:
    body = "".join(
        f"<div><head>Chapter {n}</head><p>The <hi>{n}</hi>th <emph>day</emph>\n of it.</p></div>" for n in range(9)
    )
    (tmp_path / "a.xml").write_text(tei(body))
    ((document,), _), tree = read(config("tei", tmp_path)), etree.parse(tmp_path / "a.xml")
    blocks = tree.xpath("//*[local-name()='head' or (local-name()='p' and ancestor::*[local-name()='body'])]")
    assert document.text.split() == [word for each in blocks for word in "".join(each.itertext()).split()]


def test_what_grobid_writes_is_abstract_and_body(tmp_path: Path) -> None:
    head = "<teiHeader><profileDesc><abstract><p>Short.</p></abstract></profileDesc></teiHeader>"
    (tmp_path / "a.tei.xml").write_text(
        tei('<p>As in <ref type="bibr">[3]</ref>, so said <ref type="bibr">Ray</ref>.</p><formula>x</formula>', head)
    )
    (document,), log = read(config("tei", tmp_path))
    assert document.text == "Short.\nAs in, so said Ray."
    assert log.notes == {"references to others left out": 1, "formulas left out": 1}


@pytest.mark.parametrize("reader", ["pubmed", "jats", "tei"])
def test_the_root_of_another_format_is_named(reader: str, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<mediawiki><page/></mediawiki>")
    with refused(InputError, "<mediawiki>", path=str(tmp_path / "a.xml")):
        read(config(reader, tmp_path))
