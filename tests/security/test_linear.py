"""No text takes a time that grows with the square of its length: steps are counted, not seconds."""

import ast
import importlib
import itertools
import pkgutil
import re
import sys
from collections import Counter
from pathlib import Path
from re import _constants as C
from re import _parser  # what `re` itself parses with

import pytest

from pipeline.text import book_text, epub
from pipeline.text.clean import clean
from pipeline.text.wikitext import Extractor

ROOMS = "text readers evaluation tokenization common console storage records filtering shards"
FEW = 3  # stands for a larger bound of a repetition, which is a constant
UNITS = 12  # repetitions of a hostile piece, and twice as many
GROWTH = 2.6  # of the steps when the text is doubled: 2 if linear, 4 if quadratic
KINDS = {C.CATEGORY_SPACE: " ", C.CATEGORY_DIGIT: "0", C.CATEGORY_WORD: "a"}
REPEATS = (C.MAX_REPEAT, C.MIN_REPEAT, C.POSSESSIVE_REPEAT)
ONE = (C.LITERAL, C.NOT_LITERAL, C.ANY, C.IN)


class Matcher:
    """An interpreter of a parsed expression that backtracks as `re` does, and counts its steps."""

    def __init__(self, pattern):
        source = pattern.pattern
        self.source = source if isinstance(source, str) else source.decode("latin-1")
        flags = pattern.flags & ~(0 if isinstance(source, str) else re.ASCII)
        self.tree = list(_parser.parse(self.source, flags))
        self.flags = pattern.flags & (re.I | re.S | re.M) | re.UNICODE
        self.singles = {}
        self.steps, self.text, self.groups = 0, "", dict[int, tuple[int, int]]()

    def fits(self, node, at):
        """Whether one character matches a node for one."""
        self.steps += 1
        if at >= len(self.text):
            return False
        if id(node) not in self.singles:
            state = _parser.State()
            state.flags, state.str = self.flags, self.source
            whole = _parser.SubPattern(state, [node])
            self.singles[id(node)] = re._compiler.compile(whole, self.flags)
        return self.singles[id(node)].match(self.text[at]) is not None

    def run(self, nodes, at):
        """Yield where a match of nodes from a position may end, in the order of `re`."""
        self.steps += 1
        if not nodes:
            yield at
            return
        (op, value), rest = nodes[0], nodes[1:]
        if op in ONE:
            if self.fits(nodes[0], at):
                yield from self.run(rest, at + 1)
        elif op in REPEATS:
            low, high, item = value
            low, high = min(low, FEW), FEW if C.MAXREPEAT > high > FEW else high
            ends = self.repeat(op, low, high, list(item), at)
            for end in itertools.islice(ends, 1 if op == C.POSSESSIVE_REPEAT else None):
                yield from self.run(rest, end)
        elif op == C.BRANCH:
            for branch in value[1]:
                yield from self.run([*branch, *rest], at)
        elif op == C.SUBPATTERN:
            for end in self.run(list(value[3]), at):
                self.groups[value[0]] = (at, end)
                yield from self.run(rest, end)
        elif op == C.ATOMIC_GROUP:
            for end in itertools.islice(self.run(list(value), at), 1):
                yield from self.run(rest, end)
        elif op in (C.ASSERT, C.ASSERT_NOT):
            start = at if value[0] > 0 else at - value[1].getwidth()[0]
            found = start >= 0 and next(self.run(list(value[1]), start), None) is not None
            if found == (op == C.ASSERT):
                yield from self.run(rest, at)
        elif op == C.GROUPREF:
            start, end = self.groups.get(value, (0, 0))
            self.steps += end - start
            if self.text.startswith(self.text[start:end], at):
                yield from self.run(rest, at + end - start)
        elif op == C.AT:
            if self.holds(value, at):
                yield from self.run(rest, at)
        else:
            raise NotImplementedError(op)

    def holds(self, place, at):
        """Whether a position is at a beginning, an end or a boundary."""
        text, last = self.text, len(self.text)
        if place in (C.AT_BEGINNING, C.AT_BEGINNING_STRING):
            return at == 0 or (bool(self.flags & re.M) and text[at - 1] == "\n")
        if place in (C.AT_END, C.AT_END_STRING):
            return at == last or text[at:] == "\n" or (bool(self.flags & re.M) and text[at] == "\n")
        words = [0 <= n < last and bool(re.match(r"\w", text[n])) for n in (at - 1, at)]
        return (words[0] != words[1]) == (place == C.AT_BOUNDARY)

    def repeat(self, op, low, high, item, at):
        """Yield where repetitions may end; those of one character in a loop."""
        if len(item) == 1 and item[0][0] in ONE:
            end, most = at, min(high, len(self.text) - at)
            if op == C.MIN_REPEAT:
                while end - at < low and self.fits(item[0], end):
                    end += 1
                while end - at >= low:
                    yield end
                    if end - at >= most or not self.fits(item[0], end):
                        return
                    end += 1
                return
            while end - at < most and self.fits(item[0], end):
                end += 1
            for stop in range(end, at + low - 1, -1):
                self.steps += 1
                yield stop
            return
        if op == C.MIN_REPEAT and low <= 0:
            yield at
        if high > 0:
            for end in self.run(item, at):
                if end > at or low > 0:
                    yield from self.repeat(op, low - 1, high - 1, item, end)
        if op != C.MIN_REPEAT and low <= 0:
            yield at

    def count(self, text, anchored):
        """Return the steps of all matches in a text, or of one at its beginning."""
        self.steps, self.text, at = 0, text, 0
        while at <= len(text):
            end = next(self.run(self.tree, at), None)
            if anchored:
                break
            at = end if end is not None and end > at else at + 1
        return self.steps


def atoms(nodes, groups):
    """Yield short texts that match the parts of an expression, in order."""
    for op, value in nodes:
        if op == C.LITERAL:
            yield chr(value)
        elif op in (C.NOT_LITERAL, C.ANY):
            yield "a" if op == C.ANY or value != ord("a") else "b"
        elif op == C.IN:
            yield member(value)
        elif op in REPEATS:
            yield from atoms(list(value[2]), groups)
        elif op == C.BRANCH:
            for branch in value[1][:2]:
                yield from atoms(list(branch), groups)
        elif op == C.SUBPATTERN:
            inner = list(atoms(list(value[3]), groups))
            groups[value[0]] = "".join(inner)
            yield from inner
        elif op == C.ATOMIC_GROUP:
            yield from atoms(list(value), groups)
        elif op == C.GROUPREF:
            yield groups[value]


def member(values):
    """Return a character of a set."""
    for op, value in values:
        if op == C.LITERAL or op == C.RANGE:
            found = chr(value if op == C.LITERAL else value[0])
            if values[0][0] != C.NEGATE:
                return found
        elif op == C.CATEGORY and value in KINDS and values[0][0] != C.NEGATE:
            return KINDS[value]
    return "a"


def hostile(matcher):
    """Return beginnings, pieces to repeat, and ends: of the expression's own parts, and blanks."""
    parts = list(atoms(matcher.tree, {}))[:24]
    begins = list(dict.fromkeys("".join(parts[:n]) for n in range(len(parts) + 1)))
    windows = ["".join(parts[a : a + n]) for n in (1, 2, 3, 5, 8) for a in range(len(parts))]
    pieces = dict.fromkeys([*begins[1:], *windows, " ", "a", "\n", "=", "[", "<", '"', "a "])
    found = [("", piece, end) for piece in pieces for end in ("", "\x01")]
    singles = list(dict.fromkeys([*parts, " ", "a"]))[:6]
    found += [(begin, one, "\x01") for begin in begins[1:12] for one in singles]
    return found


def patterns():
    """Return all expressions by name, and whether they are tried at one place alone."""
    found = {}
    for room in ROOMS.split():
        top = importlib.import_module(f"pipeline.{room}")
        names = [one.name for one in pkgutil.walk_packages(top.__path__, f"{top.__name__}.")]
        for name in [top.__name__, *names]:
            module = importlib.import_module(name)
            source = Path(module.__file__).read_text(encoding="utf-8")
            held = dict(vars(module))
            if name == "pipeline.text.wikitext":
                held |= vars(module.Extractor("en"))
            if name == "pipeline.text.wikitext.brackets":
                held |= vars(module.Links(["file"]))
            for key, value in held.items():
                if isinstance(value, re.Pattern):
                    calls = set(re.findall(rf"\b{key}\.(\w+)", source))
                    found[f"{name}.{key}"] = value, bool(calls) and calls <= {"match", "fullmatch"}
                for number, row in enumerate(value if isinstance(value, tuple) else ()):
                    if isinstance(row, tuple) and isinstance(row[0], re.Pattern):
                        alone = ".match(" in source and ".search(" not in source
                        found[f"{name}.{key}:{number}"] = row[0], alone
            for number, text in enumerate(inline(source)):
                found[f"{name}:{number}"] = re.compile(text), False
    return found


def inline(source):
    """Yield the expressions that a module writes into calls of `re`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and ast.unparse(node.func) != "re.compile":
                yield first.value


def test_the_counter_finds_what_is_quadratic():
    for pattern, anchored in ((r"a+b", False), (r"\s*(.*?)\s*$", True), (r"<[^>]*>", False)):
        assert growths(re.compile(pattern), anchored)
    for pattern in (r"a++", r"<[^<>]*>", r"[ab]\s"):
        assert not growths(re.compile(pattern), False)


def growths(pattern, anchored):
    """Return the hostile texts whose steps more than double when they are doubled."""
    matcher, found = Matcher(pattern), []
    for begin, piece, end in hostile(matcher):
        few, many = (matcher.count(begin + piece * n + end, anchored) for n in (UNITS, 2 * UNITS))
        if many > GROWTH * few:
            found.append((begin, piece, end))
    return found


PLAIN_PIECES = (
    "{{ }} {{a| {{{ [[ ]] [[File: [[a| ''' a''' <ref> </ref> <a <nowiki> <table> & &# {{convert| -{a: "
    ";a=> <poem> （ ![a]("
)
PIECES = [*PLAIN_PIECES.split(), "\n{|", "\n|}", "[http://a ", "'' ", "\n<!--", "\n=", "\n==a==\n", "{{nowrap|a "]
PIECES += ["\n*", "( ", "# "]


def lines_of(work):
    """Return how many lines of Python run in a call."""
    count = 0

    def tracer(frame, event, _):
        nonlocal count
        count += event == "line"
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def epub_paragraphs(page):
    return epub.paragraphs(page, Counter())


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("read", [Extractor("en").text, Extractor("zh").text, epub_paragraphs, book_text.parse, clean])
def test_a_parser_runs_lines_in_proportion_to_the_text(read, piece):
    few, many = (lines_of(lambda n=n: read(piece * n)) for n in (200, 400))
    assert many <= GROWTH * few


@pytest.mark.parametrize("piece", ["<a", "<!--", "<![CDATA[", "</a", "<?", "<a b='"])
def test_a_book_of_open_tags_is_read_at_all(piece):
    assert isinstance(epub.paragraphs("<p>Words.</p>" + piece * 400_000, Counter()), list)


PATTERNS = patterns()


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_an_expression_takes_steps_in_proportion_to_the_text(name):
    assert growths(*PATTERNS[name])[:3] == []
