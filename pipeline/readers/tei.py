"""Works in TEI XML, one per file: ELTeC, Deutsches Textarchiv, Perseus, GROBID.

Source: https://tei-c.org/release/doc/tei-p5-doc/en/html/
"""

import re
from xml.etree.ElementTree import Element

from pipeline.readers import formats
from pipeline.readers.base import Document, Documents, FileRange, ReadLog
from pipeline.readers.io import xml_prose
from pipeline.text.book_text import LineEnds
from pipeline.text.html_text import EVEN, LOWERED, RAISED

_BLOCKS = (
    "p head l ab item sp speaker stage div lg list row cell text body front back abstract salute signed u post entry "
    "argument byline closer dateline docAuthor docDate epigraph opener postscript trailer addrLine castItem titlePart"
)
_DROPPED = "note fw figDesc listBibl titlePage gap del surplus interp interpGrp teiHeader standOff facsimile rt rp"
_BETWEEN = "figure table"
_APART = "s bibl caesura castItem cit def desc dictScrap etym form gramGrp orth pron role roleDesc sense space usg xr"
_ONE_OF = ("choice", "app", "rdgGrp")
_CHOSEN = ("corr", "expan", "reg", "lem")
_COUNTED = {
    "note": "notes",
    "figure": "figures",
    "table": "tables",
    "formula": "formulas",
    "ref": "references to others",
    "rdg": "variants",
    "rt": "readings",
}
_CLOSING, _OPENING = re.compile(r"(?<!\s)\s++(?=[.,;:!?…)\]}»”’%]++(?:\s|$))"), re.compile(r"(?<=[(\[{«“„¿¡])\s+")
# Nothing between words; a line end within one; an element of a word; the edge of one that has its own words.
_GLUE, _BROKEN, _WORD, _EDGE = "\x01", "\x02", "\x03", "\x08"
_TOUCHING, _SPACED = re.compile(rf"(?<=[^\s{_GLUE}]){_WORD}(?=\w)"), re.compile(rf"(?<=\s){_WORD}(?=\w)")
_EDGES = re.compile(rf"(?<=[^\s(\[{{«“„¿¡{_EDGE}]){_EDGE}++(?=[^\s.,;:!?…)\]}}»”’%])")


class Prose(xml_prose.Prose):
    """Prose of a text: words as the elements, line ends and joins make them."""

    ends: LineEnds  # of the text
    counted = _COUNTED
    edges = dict.fromkeys(_APART.split(), _EDGE)
    particular = frozenset(("ref", *_ONE_OF, "lb", "w", "pc", "hi", "pb", "cb"))

    def refers(self, element: Element, name: str) -> bool:
        """Return whether an element refers to other works."""
        return name == "ref" and element.get("type") in ("bibr", "biblio", "noteAnchor")

    def children(self, element: Element, name: str) -> list[Element]:
        """Return the elements in an element; of a choice one: corrected, expanded, of today, the editor's."""
        if name not in _ONE_OF:
            return list(element)
        rank = [each for wanted in _CHOSEN for each in element if xml_prose.local(each) == wanted]
        self.counts["rdg"] += len(element) - 1 if name != "choice" else 0
        return (rank or list(element))[:1]

    def around(self, element: Element, name: str) -> tuple[str, str]:
        """Return marks of line ends, words and their joins, and of what is raised or lowered."""
        if name in ("w", "pc"):
            join = element.get("join")
            return _WORD + _GLUE * (join in ("left", "both")), _GLUE * (join in ("right", "both"))
        if name == "hi":
            looks = f"{element.get('rend')} {element.get('rendition')}"
            mark = RAISED if "sup" in looks else LOWERED if "sub" in looks else ""
            return mark, EVEN * bool(mark)
        if name in ("lb", "pb", "cb"):
            return _BROKEN if element.get("break") == "no" else "\n" * (name == "lb"), ""
        return super().around(element, name)

    def finished(self, text: str) -> str:
        """Return a paragraph whose words are whole and single spaces apart."""
        if _BROKEN in text:
            text = re.sub(rf"(?:[-¬⸗=]|(?<!\s))\s*+{_BROKEN}\s*+", "", text)
        # No blank tells where words are joined.
        glued = _WORD in text and len(_TOUCHING.findall(text)) > len(_SPACED.findall(text))
        text = _EDGES.sub(" ", text).replace(_EDGE, "") if _EDGE in text else text
        if _WORD in text:
            if glued:
                text = text.replace(_WORD, f" {_WORD}")
            text = re.sub(rf"(?<!\s)\s*+(?:{_GLUE}\s*+{_WORD}?|{_WORD}{_GLUE})\s*+", "", text).replace(_WORD, "")
            text = _OPENING.sub("", _CLOSING.sub("", text))
        lines = "\n".join(filter(None, map(str.strip, text.split("\n"))))
        return " ".join(self.ends.join(lines).split())


class Reader(xml_prose.XmlFiles):
    """Reader of texts; of corrections, expansions and normal spellings these are read; notes are left out."""

    SUFFIXES = (".xml", ".tei")

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the works of the files that begin in the file range."""
        for name, root in self.roots(file_range, log, "TEI", "TEI.2"):
            prose = Prose(_BLOCKS, _DROPPED, _BETWEEN)
            parts = [*root.iterfind("{*}teiHeader/{*}profileDesc/{*}abstract"), *root.iterfind("{*}text")]
            pieces = "".join(f"{prose.pieces(part)}\0" for part in parts)
            prose.ends = LineEnds(pieces, log.notes)
            text = prose.sentences(prose.divided(pieces), self.corpus.language, log.notes)
            yield Document(name, text)
            log.notes.update([formats.MARKED] * formats.is_marked(text))  # as letters of Greek in ASCII
