"""The paragraphs of an element of XML."""

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html.entities import html5
from itertools import chain, repeat
from typing import Any, cast
from xml.etree.ElementTree import Element, ParseError, XMLParser, XMLPullParser

from pipeline.readers import formats
from pipeline.readers.base import FileRange, ReadLog
from pipeline.readers.io import archives
from pipeline.storage import budget
from pipeline.text import encodings
from pipeline.text.html_text import BEFORE, EVEN, JOINTS, plain_heights
from pipeline.text.wikitext import holes

# Also encodings that the parser does not know, and numbers that are none.
MALFORMED = (ParseError, ValueError, LookupError)
_REPAIRED = "files of XML in another encoding than they declare, or the parser lacks, or with entities of no DTD"
# The beginning of a document in which no DTD elsewhere may have other entities: one that it lacks is an error.
_FIRST = re.compile(r"\A\s*+(<\?xml\b[^>]*+>)?\s*+(?:<!DOCTYPE\s++[\w:.-]++\s*+>|(?!(?s:.*)<!DOCTYPE))")
_OTHER = "use +corpus=html after renaming it to .html"
_NAMED, _DECLARED = re.compile(rb"&([A-Za-z][\w.-]*+);"), re.compile(rb"<!ENTITY\s++([\w.-]++)")
_ENTITIES = {name.removesuffix(";"): text for name, text in html5.items()}
# What references leave where they stood in brackets.
_LEFT, _FROM, _TO = "\x04", "\x05", "\x06"  # a reference left out; one that is part of a sentence
_REFERENCE = rf"(?:[\s,;–-]|and|see|e\.g\.|{_LEFT}|{_FROM}[^{_FROM}{_TO}]*+{_TO})"
_EMPTY = re.compile(rf"[(\[](?=[^()\[\]{_LEFT}{_FROM}]*+[{_LEFT}{_FROM}]){_REFERENCE}++[)\]]")
_HOLE = re.compile(rf"{_LEFT}(?:[\s,–-]*+{_LEFT})*+")
# Of MathML, in which blanks between elements mean nothing.
_LAYOUT = "math mrow mstyle mpadded munder mover semantics"
_JOINTS = {name: list[str]() for name in _LAYOUT.split()} | JOINTS
_BEFORE = BEFORE | {"break": " ", "mspace": " "}
_AFTER = dict.fromkeys(("sup", "sub", *JOINTS), EVEN)
_TEX = ("formula", "tex-math", "inline-graphic")  # a picture within a sentence is one, or a letter


def _closed_up(paragraph: str) -> str:
    """Return a paragraph without what references leave in it: blanks and marks around them, and brackets."""
    parts = _HOLE.split(_EMPTY.sub(_LEFT, paragraph))
    for number, after in enumerate(parts[1:], 1):
        before, following = parts[number - 1].rstrip(), after[:1]
        if before[-1:] in ("(", "[") and following in (",", ";"):
            parts[number] = after[1:].lstrip()
        elif before[-1:] == following == "." and after[:2] != "..":  # of `et al. [1].`
            parts[number] = after[1:]
        elif following in (")", "]") and before[-1:] in (",", ";"):
            before = before[:-1]
        elif following and not following.isspace() and following not in ".,;:!?)]":
            continue
        parts[number - 1] = before
    return "".join(parts).replace(_FROM, "").replace(_TO, "")


def local(element: Element) -> str:
    """Return the name of an element without its namespace; of a comment none."""
    return _local(element.tag)


@functools.lru_cache(1 << 10)
def _local(tag: object) -> str:
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def events(chunks: Iterable[bytes], room: budget.Budget) -> Iterator[tuple[str, Element]]:
    """Yield the start and end events of a document, for each part of which the caller renews `room.left`."""
    parser: XMLPullParser[Any] = XMLPullParser(("start", "end"))
    for data in chunks:
        room.take(budget.parsed_size(data, budget.PIECES))
        parser.feed(data)
        yield from cast(Iterator[tuple[str, Element]], parser.read_events())
    parser.close()


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
        try:
            return self._parsed(name, raw, log)
        except MALFORMED:
            text = encodings.decode_page(raw, self.corpus.language, self.corpus.encoding).removeprefix("\ufeff")
            with contextlib.suppress(*MALFORMED):
                root = self._parsed(name, _FIRST.sub(r'\1<!DOCTYPE _ SYSTEM "_">', text).encode(), log, "utf-8")
                log.notes[_REPAIRED] += 1
                return root
            raise

    def _parsed(self, name: str, raw: bytes, log: ReadLog, encoding: str | None = None) -> Element:
        """Parse a document, whose entities may be those of HTML; others, which only a DTD declares, become U+FFFD."""
        self._budget(name).take(budget.parsed_size(raw, budget.PIECES))
        parser: XMLParser[Any] = XMLParser(encoding=encoding)
        named = set(_NAMED.findall(raw)) - set(_DECLARED.findall(raw)) if b"<!DOCTYPE" in raw else set[bytes]()
        unknown = {name for name in map(bytes.decode, named) if name not in _ENTITIES}
        parser.entity.update(_ENTITIES | dict.fromkeys(unknown, "\ufffd"))
        parser.feed(raw.lstrip(b" \t\r\n"))
        root: Element = parser.close()
        log.notes.update(["files with entities of a DTD elsewhere, read as \ufffd"] * bool(unknown))
        return root


class Prose:
    """Paragraphs are what `blocks` divide; `dropped` elements, and `apart`, between words, are left out and counted."""

    counted: Mapping[str, str] = {}  # what is said of elements that are left out
    edges: Mapping[str, str] = {}  # what is put before and after other elements
    particular = frozenset[str]()  # names of elements that the methods below are asked for

    def __init__(self, blocks: str, dropped: str, apart: str = ""):
        edges = {**dict.fromkeys(blocks.split(), "\0"), **self.edges}
        self.begin, self.end, self.counts = _BEFORE | edges, _AFTER | edges, Counter[str]()
        self.left = dict.fromkeys(apart.split(), f" {_LEFT}") | dict.fromkeys(dropped.split(), "")

    def sentences(self, paragraphs: list[str], language: str, notes: Counter[str]) -> str:
        """Return the text of paragraphs without the sentences that lack a formula; note what is left out."""
        notes.update({f"{said} left out": n for name, said in self.counted.items() if (n := self.counts[name])})
        return "\n".join(holes.remove_holed(paragraphs, language, notes))

    def paragraphs(self, element: Element) -> list[str]:
        """Return the paragraphs of an element, in order."""
        return self.divided(self.pieces(element))

    def divided(self, pieces: str) -> list[str]:
        """Return the paragraphs of pieces."""
        pieces = plain_heights(pieces)
        refers = _LEFT in pieces or _FROM in pieces
        paragraphs = (self.finished(_closed_up(each) if refers else each).strip() for each in pieces.split("\0"))
        return list(filter(None, paragraphs))

    def finished(self, text: str) -> str:
        """Return a paragraph as its pieces make it."""
        return " ".join(text.split())

    def pieces(self, element: Element) -> str:
        """Return the text in an element; a NUL, which XML has not, divides paragraphs."""
        said, begin, end, particular = list[str](), self.begin, self.end, self.particular
        unlike = self.left.keys() | particular | set(_TEX) | {""}
        # No recursion: elements may be nested as deep as a stranger likes.
        ahead: list[Element | str | None] = [element]
        while ahead:
            each = ahead.pop()
            if each is None or isinstance(each, str):
                said.append(each or "")
                continue
            name = local(each)
            if name in unlike and (instead := self._instead(each, name)) is not None:
                said.append(instead)
                continue
            before, after, inner, joints = begin.get(name, ""), end.get(name, ""), list(each), _JOINTS.get(name)
            if name in particular:
                before, after, inner = *self.around(each, name), self.children(each, name)
            said.append(before + (each.text or "") if joints is None or not inner else before)
            ahead.append(after)
            if inner:
                tails = (one.tail for one in inner) if joints is None else chain(joints, repeat(""))
                ahead += reversed([part for pair in zip(inner, tails, strict=False) for part in pair])
        return "".join(said)

    def _instead(self, element: Element, name: str) -> str | None:
        """Return what is read instead of an element that is left out, refers to others or is a formula of TeX."""
        if name in self.left or not name or (name in self.particular and self.drops(element, name)):
            self.counts[name] += bool(name)
            return self.left.get(name, _LEFT if name else "")
        if name in self.particular and self.refers(element, name):
            said = "".join(element.itertext())
            part = re.search(r"[^\W\d_]", said) and not said.lstrip().startswith(("(", "["))
            self.counts[name] += not part
            return f"{_FROM}{said}{_TO}" if part else _LEFT
        if name in _TEX and element.find("{*}math") is None:
            tex = "".join(element.itertext()).rpartition(r"\begin{document}")[2].partition(r"\end{document}")[0]
            shown = holes.spoken(tex.strip().strip("$"))
            self.counts[name] += not shown
            return shown or holes.FORMULA
        return None

    def drops(self, element: Element, name: str) -> bool:
        """Return whether an element is left out, for more than its name."""
        return False

    def refers(self, element: Element, name: str) -> bool:
        """Return whether an element refers to other works; by their authors' names it is part of its sentence."""
        return False

    def children(self, element: Element, name: str) -> list[Element]:
        """Return the elements that are read of those in an element."""
        return list(element)

    def around(self, element: Element, name: str) -> tuple[str, str]:
        """Return what is put before and after the text of an element."""
        return self.begin.get(name, ""), self.end.get(name, "")
