"""Articles in JATS: PubMed Central and other publishers, one per file, in folders or archives.

Source: https://jats.nlm.nih.gov/archiving/tag-library/1.3/
"""

from xml.etree.ElementTree import Element

from pipeline.readers.base import Document, Documents, FileRange, ReadLog
from pipeline.readers.io import xml_prose

_BLOCKS = "article-title subtitle title p list-item disp-quote verse-line speech def term sec abstract body"
_DROPPED = "ref-list fn fn-group annotation object-id label back floats-group rt rp"
_BETWEEN = (
    "table-wrap table-wrap-group table fig fig-group disp-formula disp-formula-group supplementary-material media "
    "graphic code"
)
_COUNTED = {"table-wrap": "tables", "fig": "figures", "disp-formula": "formulas", "xref": "references to others"}
_COUNTED |= {"rt": "readings", "fn": "notes"}
_OTHERS = "translations of articles or abstracts, and answers, left out"


class Prose(xml_prose.Prose):
    """Prose of an article, without references to others."""

    counted = _COUNTED
    particular = frozenset(("xref", "sup", "alternatives", "inline-formula"))

    def drops(self, element: Element, name: str) -> bool:
        """Return whether an element is the mark of a note, or raised references alone."""
        if name == "xref":
            return element.get("ref-type") in ("fn", "table-fn")
        inner = list(element) if name == "sup" else []
        return bool(inner) and all(xml_prose.local(one) == "xref" for one in inner)

    def children(self, element: Element, name: str) -> list[Element]:
        """Return the elements in an element; of the forms of a formula MathML, else TeX."""
        if name not in ("alternatives", "inline-formula"):
            return list(element)
        return [*element.iterfind("{*}math"), *element.iterfind("{*}tex-math")][:1] or list(element)

    def refers(self, element: Element, name: str) -> bool:
        """Return whether an element refers to other works."""
        return name == "xref" and element.get("ref-type") == "bibr"


class Reader(xml_prose.XmlFiles):
    """Reader of title, abstract and body; tables, figures and references are left out and counted."""

    UNIT = "article"
    SUFFIXES = (".nxml", ".xml", ".jats")

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the articles of the files that begin in the file range."""
        for name, article in self.roots(file_range, log, "article"):
            yield Document(name, text_of(article, self.corpus.language, log))


def text_of(article: Element, language: str, log: ReadLog) -> str:
    """Return title, abstract and body of an article, a paragraph per line."""
    prose = Prose(_BLOCKS, _DROPPED, _BETWEEN)
    meta, body = article.find("{*}front/{*}article-meta"), article.find("{*}body")
    heads = [] if meta is None else [*meta.findall("{*}title-group/{*}article-title"), *meta.findall("{*}abstract")]
    paragraphs = [text for part in [*heads, *([] if body is None else [body])] for text in prose.paragraphs(part)]
    kinds = ("sub-article", "response", "front/{*}article-meta/{*}trans-abstract")
    others = [each for kind in kinds for each in article.iterfind(f"{{*}}{kind}")]
    log.notes.update([_OTHERS] * len(others))
    return prose.sentences(paragraphs, language, log.notes)
