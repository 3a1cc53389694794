"""Paragraphs from the text of books, without hard wraps, headers, licences and markup."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from pipeline.text.encodings import CP1252

Lines = list[str]

JOINED = "words joined at line ends"

# A line longer than this is not hard-wrapped: no editor wraps wider.
WRAP = 120

_BREAK = re.compile(r"\r\n|\r|\n|\f|\x85")
_HEADING = re.compile(r"(#{1,6})\s++(.*)$")  # any number of # may end the line
_RULE = re.compile(r"\s*([-_=*~.])(\s*\1){2,}\s*$")
_ITEM = re.compile(r"\s*(?:[*+•-]|\d{1,2}[.)])\s")
# Words that a line end divides: by marks that say so, or by a hyphen, which a word may have of its own.
_DIVIDED = re.compile(r"(?<=[^\W\d_])[¬⸗]\s*\n\s*(?=[^\W\d_])")
_HYPHEN = re.compile(r"(?<![^\W\d_])([^\W\d_]++)[-‐]\n([^\W\d_]++)|(?<=[^\W\d_][-‐])\n(?=\w)")
_AND = ("und", "oder", "bis", "bzw", "and", "or", "to", "en", "of", "tot", "och", "og", "eller", "tai", "és")
_WHOLE = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*+")
_FACT = re.compile(r"(#{0,6})\s*(Title|Author|Authors|Year|Date|Language|Translator):")
_SCAN = 40  # lines searched for header facts
_HEADER = 1000  # lines that a Project Gutenberg header may have

# Thai, Lao, Tibetan, Myanmar, Khmer, Tai scripts, Balinese, Javanese, Chinese and Japanese with their
# punctuation, but not Korean.
_UNSPACED = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aad\u1b00-\u1b7f\u2e80-\u312f\u31a0-\ua4cf"
    "\ua980-\ua9df\uaa60-\uaadf"
    "\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"
)
# Dashes, ellipses, dots and quotation marks, which belong to the script next to them.
_SHARED = "—―…‥·‧“”‘’"

_GUTENBERG = r" OF (?:TH(?:E|IS) )?(?:COPYRIGHTED )?(?:PROJECT GUTENBERG|DISTRIBUTED PROOFREADERS)"
_GUTENBERG_MARK = re.compile(
    rf"\s*\*{{2,}} ?(?:(?P<start>START)|(?P<end>END)){_GUTENBERG}|\s*\*+ ?(?P<printed>END)\*? ?THE SMALL PRINT!|"
    r"\W*START\W+(?:FULL LICEN[CS]E|THE SMALL PRINT!)|\W*THE FULL PROJECT GUTENBERG\S* LICEN[CS]E",
    re.IGNORECASE,
)
_GUTENBERG_LAST = re.compile(
    r"\W*(?:The )?End(?: of|e)(?: th(?:e|is)| de[rs]| dieses)? Proje[ck]t Gutenberg\S* ", re.IGNORECASE
)
_GUTENBERG_CREDIT = re.compile(
    r"(?:Th(?:is|e) (?:e-?text|eBook|file) was (?:first )?)?"
    r"(?:Produced|Prepared|E-?text prepared|Transcribed)\b.*\bby\b",
    re.IGNORECASE,
)

_BOX = r"^[ \t]*\+[-=]{3,}\+[ \t]*\n(?=(?:[ \t]*\|.*\n)*?.*Transcriber)(?:[ \t]*\|.*\n)++[ \t]*\+[-=]{3,}\+[ \t]*$"
_INNER = r"[^\[\]]*+(?:\[[^\[\]]*+\][^\[\]]*+)*+"  # of brackets
# Of Project Gutenberg in several languages, and of Aozora: what its marks mean, in the text, and where that is from.
_PICTURE = "Illustration|Decoration|Frontispiece|Music|Plate|Map|Ilustración|Ilustração|Illustrazione|Abbildung|Kuva"
_TRANSCRIBER = "Transcriber['’]?s?['’]? [Nn]otes?|Anmerkung(?:en)? zur Transkription|Nota del [Tt]ra(?:ns)?criptor"
_FOOTNOTE = "Footnote|Note|Nota|Fußnote|Anmerkung|Voetnoot|Viite"
_AOZORA = r"^-{20,}\n【テキスト中.*\n(?:(?!-{20}).*\n)*+-{20,}$|［＃[^［］\n]*+］|^底本：(?:.*\n?){1,40}"
_OF_EDITIONS = {
    "illustrations": re.compile(rf"\[(?:{_PICTURE})s?(?::{_INNER})?\]"),
    "notes in the margin": re.compile(rf"\[Side-?note:{_INNER}\]", re.IGNORECASE),
    "notes of the transcriber": re.compile(rf"{_BOX}|{_AOZORA}|\[(?:{_TRANSCRIBER}):{_INNER}\]", re.MULTILINE),
    "notes": re.compile(rf"^[ \t]*\[(?:{_FOOTNOTE}) [^\[\]:]{{1,9}}:(?:{_INNER}\]|.*(?:\n.+)*+)", re.MULTILINE),
    "marks of readings": re.compile(r"《(?<=\w《)[\u3040-\u30ff]++》|｜(?=[^｜《》\n]{1,20}《[\u3040-\u30ff])"),
    "lines of contents": re.compile(r"^.*(?:[ .]\.){4,}[ .]*\d+[ \t]*$", re.MULTILINE),
    "numbers of pages": re.compile(
        r"\[(?:Pg|Page|p\.) ?[\divxlc]+\]|\[Blank Page\]|\{(?<![\^_]\{)(?:\d{1,4}|[ivxlc]+)\}", re.IGNORECASE
    ),
}
_ANCHOR = re.compile(r"\[(?:\^[^\[\]\n]++|\d{1,3}|[A-Z*†])\]")

_TARGET = r"\(\s*+(?:[^()\s]|\([^()\s]*+\))*+(?:\s+(?:\"[^\"]*\"|'[^']*'))?\)"
_IMAGE = re.compile(rf"!\[[^\[\]]*+\]{_TARGET}")
_LINK = re.compile(rf"\[({_INNER})\]{_TARGET}")
_STARS = re.compile(r"(?<![^\W_])(?<![*\\])(\*{1,3})(?=[^\s*])((?:\\\*|[^*])*?[^\s*])\1(?![*]|[^\W_])")
_LINES = re.compile(r"(?<![\w*\\])(_{1,3})(?=[^\s_*])((?:\\_|[^_*])*?[^\s_*])\1(?![\w*])")
_RAISED = re.compile(r"(?:(\^)(?=\{[-−]?\d+\})|[\^_])\{([^{}\s]{1,9})\}")
# By the sign that a paragraph has: what is between is shown. Editions have =bold=, ~so~, +so+, #so#; 10^{6}, M^{r}.
_MARKS = [("[", _IMAGE, ""), ("[", _LINK, r"\1"), *[("*", _STARS, r"\2")] * 2, ("_", _LINES, r"\2")]
for sign, digit in (("=", ""), ("==", ""), ("~~", ""), ("~", r"\d"), (r"\+", r"\d"), ("#", r"\d")):  # not ~5 nor +1
    typed = rf"(?<![\w=~+#]){sign}(?=[^\s=~+#{digit}-])([^=~+#\n]*?[^\s=~+#]){sign}(?![\w=~+#])"
    _MARKS.append((sign[-1], re.compile(typed), r"\1"))
_MARKS.append(("{", _RAISED, r"\1\2"))

# UTF-8 that was once read as Latin-1 or cp1252: é has become Ã©, a dash â€”.
_CP1252 = {ord(letter): chr(byte) for byte, letter in CP1252.items() if ord(letter) != byte}
_HIGH = "[\x80-\xbf" + "".join(map(chr, _CP1252)) + "]"
_MISREAD = re.compile(f"[ÂÃÅ]{_HIGH}|â[€\x80]{_HIGH}")
# What may follow a word in capitals in correct text, as in «Å» or MANHÃ…: quotation marks, spaces,
# hyphens, dashes, and digits of footnotes and powers.
_FOLLOWS = frozenset("‘’‚“”„‹›«»…–—\xa0\xad¹²³")


@dataclass(frozen=True)
class Book:
    """A book; `text` has one paragraph or heading per line."""

    text: str
    repaired: bool  # mojibake was found and decoded correctly
    joined: int = 0  # words that line ends divided
    passed: Counter[str] = field(default_factory=Counter)  # parts that are not in the text, by kind
    title: str = ""  # as the file's data say


def parse(text: str, unmarked: Callable[[str], tuple[str, Counter[str]]] | None = None) -> Book:
    """Parse the text of a book's file; `unmarked` returns prose, and how often there was what else."""
    whole = _MISREAD.sub(_reread, text) if _is_misread(text) else text
    lines = _without_header(without_licence(_BREAK.split(whole.replace("\ufeff", ""))))
    kept, passed = (unmarked or _without_marks)("\n".join(lines))
    if passed["notes"]:
        kept, passed["numbers of notes"] = _ANCHOR.subn("", kept)
    ends, longest = LineEnds(kept, Counter()), len(kept) if unmarked else WRAP  # a line end of Markdown is a blank
    paragraphs = _paragraphs(kept.split("\n"), ends, longest)
    prose = [" ".join(each.split()) if unmarked else plain(each) for each in paragraphs]
    return Book("\n".join(filter(None, prose)), whole != text, ends.notes[JOINED], +passed)


def _without_marks(text: str) -> tuple[str, Counter[str]]:
    """Return a text without what editions put into it, and how often there was what."""
    passed = Counter[str]()
    for what, mark in _OF_EDITIONS.items():
        text, passed[what] = mark.subn("", text)
    return text, passed


class LineEnds:
    """Words that line ends divide, joined as the rest of the text has them, and noted."""

    def __init__(self, text: str, notes: Counter[str]):
        self.text, self.notes = text, notes

    @cached_property
    def known(self) -> frozenset[str]:
        """Return the words of the text, in lower case."""
        return frozenset(_WHOLE.findall(self.text.lower()))

    def join(self, lines: str) -> str:
        """Return lines without the ends within words; a hyphen stays unless the text has the word without it."""
        if "¬" in lines or "⸗" in lines:  # asked first, as the expressions take 0.1 s a MB
            lines, count = _DIVIDED.subn("", lines)
            self.notes.update([JOINED] * count)
        return _HYPHEN.sub(self._whole, lines) if "-\n" in lines or "‐\n" in lines else lines

    def _whole(self, match: re.Match[str]) -> str:
        first, last = match[1], match[2]
        if first is None:
            return ""
        whole, hyphened = f"{first}{last}".lower(), f"{first}-{last}".lower()
        if whole not in self.known or hyphened in self.known:
            # Nord- und Südsee, but black-and-white
            suspended = last.lower() in _AND and match.string[match.end() : match.end() + 1] not in ("-", "‐")
            return f"{first}-{' ' * suspended}{last}"
        self.notes[JOINED] += 1
        return f"{first}{last}"


def unwrapped(text: str, notes: Counter[str]) -> str:
    """Return the text with each paragraph (delimited by blank lines) joined into one line; note joined words."""
    ends = LineEnds(text, notes)
    blocks = re.split("\n{2,}", "\n".join(map(str.rstrip, _BREAK.split(text))).strip("\n"))
    return "\n".join(paragraph for block in blocks for paragraph in _joined_block(block.split("\n"), ends))


def _joined_block(lines: Lines, ends: LineEnds) -> Iterator[str]:
    """Yield the paragraphs of lines without blank ones: an indent of U+3000 begins one, and each item of a list."""
    items = {i for i, line in enumerate(lines) if _ITEM.match(line)}
    begins = [i for i, line in enumerate(lines) if line.startswith("\u3000") or (i in items and len(items) > 1)]
    for begin, end in pairwise(sorted({0, *begins, len(lines)})):
        yield joined(ends.join("\n".join(map(str.strip, lines[begin:end]))).split("\n"))


def joined(lines: Lines) -> str:
    """Return the lines of a paragraph as one, with spaces between them in scripts that have any."""
    pieces = lines[:1]
    for line in lines[1:]:
        before, after = pieces[-1].rstrip().rstrip(_SHARED)[-1:], line.lstrip().lstrip(_SHARED)[:1]
        unspaced = (_UNSPACED.match(before) and _UNSPACED.match(after)) or pieces[-1].rstrip().endswith("\xad")
        pieces[-1] = pieces[-1].rstrip() if unspaced else f"{pieces[-1]} "
        pieces.append(line.lstrip() if unspaced else line)
    return "".join(pieces)


def plain(paragraph: str) -> str:
    """Remove the markup of emphasis, links and images, and collapse white space."""
    for mark, pattern, shown in _MARKS:
        if mark in paragraph:
            paragraph = pattern.sub(shown, paragraph)
    return " ".join(paragraph.split())


def _is_misread(text: str) -> bool:
    """Return whether the text has letters that were read in the wrong encoding.

    Some pairs of characters occur in correct text too. They count if a pair is certainly wrong, or
    if all that is not ASCII could be such pairs.
    """
    if _MISREAD.search(text) is None:
        return False
    return any(map(_certain, _MISREAD.finditer(text))) or _MISREAD.sub("", text).isascii()


def _certain(match: re.Match[str]) -> bool:
    before = match.string[match.start() - 1] if match.start() else " "
    if match[0][-1] not in _FOLLOWS or match[0].startswith("â"):
        return True
    # No word has a capital after a small letter, and none begins right after these marks.
    return before.islower() or before in ".,;:!?)"


def _reread(match: re.Match[str]) -> str:
    try:
        return match[0].translate(_CP1252).encode("latin-1").decode("utf-8")
    except UnicodeError:
        return match[0]


def without_licence(lines: Lines) -> Lines:
    """Return the lines between a Project Gutenberg header and licence, of each book in the file."""
    marks = {i: match.lastgroup for i, line in enumerate(lines) if (match := _GUTENBERG_MARK.match(line))}
    if not marks:
        return lines
    starts = [i for i, kind in marks.items() if kind in ("start", "printed")]
    kept, start = Lines(), -1 if not starts or starts[0] >= _HEADER else None
    for i in [*marks, len(lines)]:
        said = _said(lines, start, i, marks.get(i)) if start is not None else i
        if start is not None and (i not in starts or said < i):
            kept += [*_without_title(lines, start, said), ""]
            start = None
        if i in starts and (start is None or i < start + _HEADER):
            start = i
    return kept


def _said(lines: Lines, start: int, mark: int, kind: str | None) -> int:
    """Return where a book ends that begins at `start`.

    "End of Project Gutenberg's …" is the end where no stars are, or in the last paragraph before
    these: a book may have such a sentence.
    """
    said = next((i for i in range(mark - 1, start, -1) if _GUTENBERG_LAST.match(lines[i])), mark)
    last = "\n".join(map(str.strip, lines[said:mark])).strip("\n")
    return mark if kind == "end" and "\n\n" in last else said


def _without_title(lines: Lines, start: int, end: int) -> Lines:
    """Return the lines of a book without the rest of a mark before them, and without a credit."""
    body = lines[start + 1 : end]
    if start < 0:
        return body
    if "***" in lines[start] and not lines[start].rstrip().endswith("***"):
        # A long title continues on the next lines, up to three more stars.
        closing = (i for i, line in enumerate(body[:4]) if line.rstrip().endswith("***"))
        body = body[next(closing, -1) + 1 :]
    return _without_credit(body)


def _without_credit(lines: Lines) -> Lines:
    """Drop a first paragraph that credits the makers of the file."""
    first = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
    if first == len(lines) or not _GUTENBERG_CREDIT.match(lines[first]):
        return lines
    return lines[next((i for i in range(first, len(lines)) if not lines[i].strip()), len(lines)) :]


def _without_header(lines: Lines) -> Lines:
    """Return the lines after the facts that the first lines may state: each once, and apart only as headings."""
    end, names = 0, set[str]()
    for number, line in enumerate(lines[:_SCAN], 1):
        fact = _FACT.match(line)
        if fact and fact[2] not in names and (fact[1] or not names or number == end + 1):
            end = number
            names.add(fact[2])
        elif line.strip() and not _RULE.match(line):
            break
    return lines[end:]


def _paragraphs(lines: Lines, ends: LineEnds, longest: int) -> Iterator[str]:
    """Yield headings and paragraphs; lines between blank lines are joined, unless one is longer than `longest`."""
    block: Lines = []
    for line in [*lines, ""]:
        heading = _HEADING.match(line)
        if line.strip() and not heading and not _RULE.match(line):
            block.append(line)
            continue
        if block:
            yield from block if max(map(len, block)) > longest else _joined_block(block, ends)
        block = []
        if heading:
            yield heading[2].rstrip("#").rstrip()  # any number of marks may end it
