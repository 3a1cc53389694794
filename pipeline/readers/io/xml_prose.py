"""The paragraphs of an element of XML."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from html.entities import html5
from typing import Any, cast
from xml.etree.ElementTree import Element, ParseError, XMLParser, XMLPullParser

from pipeline.readers import formats
from pipeline.readers.base import FileRange, ReadLog
from pipeline.readers.io import archives
from pipeline.storage import budget
from pipeline.text import encodings
from pipeline.text.wikitext import holes

# Also encodings that the parser does not know, and numbers that are none.
MALFORMED = (ParseError, ValueError, LookupError)
_OTHER = "use +corpus=html after renaming it to .html"
_NAMED, _DECLARED = re.compile(rb"&([A-Za-z][\w.-]*+);"), re.compile(rb"<!ENTITY\s++([\w.-]++)")
_ENTITIES = {name.removesuffix(";"): text for name, text in html5.items()}
# What references leave where they stood in brackets.
_LEFT, _FROM, _TO = "\x04", "\x05", "\x06"  # a reference left out; one that is part of a sentence
_REFERENCE = rf"(?:[\s,;–-]|and|see|e\.g\.|{_LEFT}|{_FROM}[^{_FROM}{_TO}]*+{_TO})"
_EMPTY = re.compile(rf"(?<!\s)\s*+[(\[](?=[^()\[\]{_LEFT}{_FROM}]*+[{_LEFT}{_FROM}]){_REFERENCE}++[)\]]")
_HOLE = re.compile(rf"(?<!\s)(\s*+){_LEFT}(?:[\s,–-]*+{_LEFT})*+(?=([.,;:!?)\]]|\s|$)?)")


_RAISED, _LOWERED, _EVEN = "\x07", "\x0e", "\x0f"  # the last ends either
_HEIGHT = re.compile(
    rf"(?<=\d){_EVEN}?(?:{_RAISED}(?=[-\u2212\u2013+]?\d|[knx]\b)|({_LOWERED})(?=\d))|(?<=\d)({_EVEN})(?={_LOWERED}?\d)"
)
_HEIGHTS = dict.fromkeys(map(ord, (_RAISED, _LOWERED, _EVEN)))
_MARKS = dict.fromkeys(map(ord, (_FROM, _TO)))
_JOINTS = {"msup": _RAISED, "msub": _LOWERED, "mfrac": "/"}  # of MathML: what is between the two parts
_TEX = ("formula", "tex-math", "inline-graphic")  # a picture within a sentence is one, or a letter


def _closed_up(paragraph: str) -> str:
    """Return a paragraph without what references leave in it; no blanks before a mark, or two in a row."""
    whole = _HOLE.sub(lambda hole: hole[1] if hole[2] is None else "", _EMPTY.sub("", paragraph))
    return whole.translate(_MARKS)


def local(element: Element) -> str:
    """Return the name of an element without its namespace; of a comment none."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def events(parser: "XMLPullParser[Any]") -> Iterator[tuple[str, Element]]:
    """Return the parser's pending start and end events."""
    return cast(Iterator[tuple[str, Element]], parser.read_events())


def unknown_entities(raw: bytes) -> set[str]:
    """Return the names of entities that only a DTD in another file can declare."""
    named = set(_NAMED.findall(raw)) - set(_DECLARED.findall(raw)) if b"<!DOCTYPE" in raw else set[bytes]()
    return {name for name in map(bytes.decode, named) if name not in _ENTITIES}


def parse(raw: bytes, room: budget.Budget, unknown: set[str], encoding: str | None = None) -> Element:
    """Parse a document, whose entities may be those of HTML; its `encoding` is what it declares.

    `unknown` entities become U+FFFD.

    Raises:
        xml.etree.ElementTree.ParseError: it is not well-formed.
        ValueError: the parser does not know its encoding.
    """
    room.take(budget.parsed_size(raw, budget.PIECES))
    parser: XMLParser[Any] = XMLParser(encoding=encoding)
    parser.entity.update(_ENTITIES)
    parser.entity.update(dict.fromkeys(unknown, "\ufffd"))
    parser.feed(raw.lstrip(b" \t\r\n"))
    root: Element = parser.close()
    return root


class XmlFiles(archives.FileReader):
    """Files and members of archives that are documents of XML."""

    def roots(self, file_range: FileRange, log: ReadLog, *wanted: str) -> Iterator[tuple[str, Element]]:
        """Yield names and elements that have a `wanted` name: the root of a file, or those in it."""
        for name, raw in self.contents(file_range, log):
            if not raw.strip():
                log.notes["empty files"] += 1
                continue
            try:
                root = self._root(name, raw, log)
            except MALFORMED as error:
                log.reject(f"not well-formed XML: {error}", name)
                continue
            parts = [root] if local(root) in wanted else [each for each in root.iter() if local(each) in wanted]
            for number, each in enumerate(parts, 1):
                yield name if len(parts) == 1 else f"{name} {local(each)} {number}", each
            if not parts:
                other = formats.not_prose(raw[: 1 << 12].decode("latin-1"))
                why = other or f"the root element is <{local(root)}>, not <{wanted[0]}>; {_OTHER}"
                log.reject(why, name, offer_skip=False)

    def _root(self, name: str, raw: bytes, log: ReadLog) -> Element:
        unknown = unknown_entities(raw)
        log.notes.update(["files with entities of a DTD elsewhere, read as \ufffd"] * bool(unknown))
        try:
            return parse(raw, self._budget(name), unknown)
        except MALFORMED:
            text = encodings.decode_page(raw, self.corpus.language, self.corpus.encoding).removeprefix("\ufeff")
            with contextlib.suppress(*MALFORMED):
                raw = text.encode()
                root = parse(raw, self._budget(name), unknown_entities(raw), "utf-8")
                log.notes["files of XML in another encoding than they declare, or in one that the parser lacks"] += 1
                return root
            raise


class Prose:
    """Paragraphs are what `blocks` divide; `dropped` elements, and `apart`, between words, are left out and counted."""

    counted: Mapping[str, str] = {}  # what is said of elements that are left out

    def __init__(self, blocks: str, dropped: str, apart: str = ""):
        self.edges, self.counts = dict.fromkeys(blocks.split(), "\0"), Counter[str]()
        self.left = dict.fromkeys(apart.split(), f" {_LEFT}") | dict.fromkeys(dropped.split(), "")

    def sentences(self, paragraphs: list[str], language: str, notes: Counter[str]) -> str:
        """Return the text of paragraphs without the sentences that lack a formula; note what is left out."""
        notes.update({f"{said} left out": n for name, said in self.counted.items() if (n := self.counts[name])})
        return "\n".join(holes.remove_holed(paragraphs, language, notes))

    def paragraphs(self, element: Element) -> list[str]:
        """Return the paragraphs of an element, in order."""
        return self.divided("".join(self.pieces(element)))

    def divided(self, pieces: str) -> list[str]:
        """Return the paragraphs of pieces."""
        if _RAISED in pieces or _LOWERED in pieces:
            pieces = _HEIGHT.sub(lambda at: " " if at[2] else "_" if at[1] else "^", pieces).translate(_HEIGHTS)
        refers = _LEFT in pieces or _FROM in pieces
        paragraphs = (self.finished(_closed_up(each) if refers else each).strip() for each in pieces.split("\0"))
        return list(filter(None, paragraphs))

    def finished(self, paragraph: str) -> str:
        """Return a paragraph as its pieces make it."""
        return " ".join(paragraph.split())

    def pieces(self, element: Element) -> Iterator[str]:
        """Yield the texts in an element; a NUL, which XML has not, divides paragraphs."""
        # No recursion: elements may be nested as deep as a stranger likes.
        ahead: list[Element | str] = [element]
        while ahead:
            each = ahead.pop()
            if isinstance(each, str):
                yield each
                continue
            name = local(each)
            if name in self.left or not name or self.drops(each, name):
                self.counts[name] += bool(name)
                yield self.left.get(name, _LEFT if name else "")
                continue
            if self.refers(each, name):
                said = "".join(each.itertext())
                part = re.search(r"[^\W\d_]", said) and not said.lstrip().startswith(("(", "["))
                self.counts[name] += not part
                yield f"{_FROM}{said}{_TO}" if part else _LEFT
                continue
            if name in _TEX and each.find("{*}math") is None:
                tex = "".join(each.itertext()).rpartition(r"\begin{document}")[2].partition(r"\end{document}")[0]
                shown = holes.spoken(tex.strip().strip("$"))
                self.counts[name] += not shown
                yield shown or holes.FORMULA
                continue
            edge, joint = self.edges.get(name, ""), _JOINTS.get(name, "")
            yield edge + self.before(each, name) + (each.text or "")
            ahead.append(edge + self.after(each, name))
            inner = [part for one in reversed(self.children(each, name)) for part in (joint or one.tail or "", one)]
            ahead += inner[bool(joint) :]

    def drops(self, element: Element, name: str) -> bool:
        """Return whether an element is left out, for more than its name."""
        return False

    def refers(self, element: Element, name: str) -> bool:
        """Return whether an element refers to other works; by their authors' names it is part of its sentence."""
        return False

    def children(self, element: Element, name: str) -> list[Element]:
        """Return the elements that are read of those in an element."""
        return list(element)

    def before(self, element: Element, name: str) -> str:
        """Return what an element puts before its text."""
        return {"sup": _RAISED, "sub": _LOWERED, "break": " ", "msqrt": "√"}.get(name, "")

    def after(self, element: Element, name: str) -> str:
        """Return what an element puts after its text."""
        return _EVEN if name in ("sup", "sub") else ""
