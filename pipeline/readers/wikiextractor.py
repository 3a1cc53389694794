"""WikiExtractor's output for a Wikipedia dump: `<doc …>` elements, or JSON lines (`--json`)."""

import html
import re
from collections.abc import Iterator

from pipeline.config import CorpusConfig
from pipeline.errors import InputError
from pipeline.readers import Document, Documents, FileRange, ReadLog, formats, jsonl
from pipeline.readers.io import text_lines
from pipeline.readers.wikipedia import keeps
from pipeline.storage.places import File
from pipeline.text.wikitext import Extractor, holes

_OPEN = re.compile(r"<doc\s([^>]*)>\s*$")
_BETWEEN = re.compile(r'"\s++(?=\w++=")')  # attributes; quotes in titles are not escaped
_NAME = re.compile(r"wiki_\d+")
# Version 2 marked list items and headings: `BULLET::::- item`, `Section::::Heading.`, which ends with a full stop.
_MARK = re.compile(r"^BULLET::::[-*#]?\s*+|^Section::::[ \t]*+(.*?)\.?$", re.MULTILINE)
# Version 3 ends headings alone with a full stop: 98 % of such short lines before prose, in a sample, are headings.
_HEADING = re.compile(r"\n((?:[^ \n]++ ){0,3}+[^ \n]*[^\W\n]['\")”»]?)\.(?=\n.{80})")
# Removed templates leave empty brackets, and some markup is not removed.
# Few have any: a search for one that begins with a bracket is six times as fast as for either, or for a blank.
_BRACKETS = (re.compile(r"\([\s,;]*+\)"), re.compile(r"（[\s，；、,;]*+）"))
_EMPTY = re.compile(rf"\s?(?:{'|'.join(each.pattern for each in _BRACKETS)})")
_MARKUP = re.compile(r"</?[a-z]|\[\[|\{\{|-\{|__[A-Z]+__")
# What it leaves of formulas and code, and where a template was: empty quotes, a blank before a mark (70 in a million
# characters; 5 in the wikitext of articles), and lines that a displayed formula parted.
# Each pattern is tried where one of its signs is in the text.
_GAPS = (
    (("formula_", "codice_"), re.compile(r"\b(?:formula|codice)_\d+\b")),
    (('""', "“”", "《》", "〈〉", "«»"), re.compile(r"""(?<![\w"])"(?="(?![\w"]))|“(?=”)|《(?=》)|〈(?=〉)|«(?=»)""")),
    ((" ,", " ."), re.compile(r"""\ (?=[,.](?:\s|$))(?<=[\w\])”"]\ )""")),
    ((" )",), re.compile(r"\([^\s()][^()\n]*+(?<= )(?=\))")),
)
_MARKS = {"f": holes.FORMULA, "c": holes.CODE}  # in place of what is numbered; the others stay, and are marked
_PARTED = re.compile(r"(?<=[\w,])\n(?=[a-z])")


class Reader(text_lines.TextFiles):
    """Reader of articles; the title above each article is not part of its text.

    An article with nothing but a title (common: it held only templates) is an empty document.
    """

    def __init__(self, corpus: CorpusConfig, source: str, *, holes: str = "leave_out"):
        super().__init__(corpus, source, ("",))
        self.keep = keeps(holes)
        self.extractor = Extractor(corpus.language, keep=self.keep)

    def of_reader(self, found: list[File]) -> list[File]:
        """Return the files whose names contain `wiki_00` (any number); all files if none do."""
        return [path for path in found if _NAME.search(path.name)] or found

    def read(self, split: FileRange, tally: ReadLog) -> Documents:
        """Yield the articles whose first line the split owns.

        Raises:
            InputError: an article has no end, or WikiExtractor did not write the file.
        """
        lines = self.lines(split, tally)
        first = True  # nothing but blank lines so far
        for line in lines:
            opened = _OPEN.match(line.text)
            if not line.owned:
                return
            if opened:
                yield self._article(opened[1], self._body(split, line, lines), tally)
            # In a file of elements such a line is part of an article, of which a split may own the end alone.
            elif line.text.startswith("{") and self.form(split.path).first[:1] == "{":
                yield from self._object(split, line, tally)
            elif first and line.text.strip() and split.start == 0:
                why = "neither <doc …> nor a JSON object: not of WikiExtractor; choose another corpus.reader"
                raise InputError(why, path=split.path, line=line.number)
            first = first and not line.text.strip()

    def _body(self, split: FileRange, first: text_lines.Line, lines: Iterator[text_lines.Line]) -> list[str]:
        body: list[str] = []
        room = text_lines.document_budget(split, first, "no </doc>")
        for line in lines:
            room.take(text_lines.memory_of(line))
            if line.text.startswith("<"):
                if line.text.rstrip() == "</doc>":
                    return body
                if _OPEN.match(line.text):
                    break
            body.append(line.text)
        path, number = text_lines.place(split, first.number)
        why = "the article that begins here has no </doc>; the file is truncated or damaged, extract it again"
        raise InputError(why, path=path, line=number)

    def _article(self, attributes: str, body: list[str], tally: ReadLog) -> Document:
        parts = _BETWEEN.split(attributes.strip().removesuffix('"'))
        known = {name: value for name, _, value in (part.partition('="') for part in parts)}
        title = html.unescape(known.get("title", ""))
        return self._document(known.get("id", "?"), title, "\n".join(body), tally)

    def _object(self, split: FileRange, line: text_lines.Line, tally: ReadLog) -> Documents:
        try:
            row = jsonl.parse(line.text)
            if not isinstance(row.get("text"), str):
                raise ValueError(formats.not_prose(line.text) or "the object has no text")
        except ValueError as error:
            text_lines.bad_line(tally, split, line.number, str(error))
            return
        yield self._document(str(row.get("id", "?")), str(row.get("title", "")), row["text"], tally)

    def _document(self, number: str, title: str, text: str, tally: ReadLog) -> Document:
        text = html.unescape(text).strip()
        first, _, rest = text.partition("\n")
        if title and first.strip() == title:
            text = rest.lstrip()
        if not text:  # as two of three are
            return Document(f"{self.corpus.name}:{number}", text)
        if "::::" in text:
            text = _MARK.sub(r"\1", text)
        text = _HEADING.sub(r"\n\1", text)
        if _BRACKETS[0].search(text) or _BRACKETS[1].search(text):
            text = _EMPTY.sub("", text)
        whole = text
        for signs, gap in () if self.keep else _GAPS:
            if any(map(whole.__contains__, signs)):
                text = gap.sub(lambda match: _MARKS.get(match[0][0], match[0] + holes.TEMPLATE), text)
        if (holed := text != whole) and holes.FORMULA in text:
            text = _PARTED.sub(f"\n{holes.FORMULA}\n", text)
        if _MARKUP.search(text):
            text = self.extractor.text(text.replace("\n", "\n\n"), tally.notes)  # each line is a paragraph
        elif holed:
            text = holes.leave_out(text.replace("\n", "\n\n"), self.corpus.language, tally.notes)
            text = _EMPTY.sub("", text)
        return Document(f"{self.corpus.name}:{number}", text, title=title)
