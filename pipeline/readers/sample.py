"""The sample corpus: the documentation of Python and of packages that this one depends on.

Every installation has this text, so everything can be tried without a download. A document is the
prose of one module's docstrings, in order. Modules are parsed, never imported, and just enough of
reStructuredText, of numpy's and Google's section styles and of Markdown's fences to drop code,
tables and references and to remove the markup of the rest.
"""

import ast
import importlib.util
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.common.schema import check
from pipeline.config import CorpusConfig
from pipeline.errors import InputError
from pipeline.readers.base import Document, Documents, FileRange, ReadLog
from pipeline.readers.io import byte_ranges
from pipeline.storage import places

STANDARD_LIBRARY = "python"
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_PASSED_OVER = ("test", "tests", "testing", "idlelib", "lib2to3", "site-packages", "_vendor", "externals")


class Reader:
    """Reader of the modules of installed packages.

    The modules of a package, sorted by path, count as one long file. A file range is a byte range of it,
    so packages of any size are read in parallel.
    """

    def __init__(self, corpus: CorpusConfig, source: str, *, packages: list[str], minimum_characters: int = 500):
        check(isinstance(packages, list), "must be a list, such as [python,numpy]", "corpus.options.packages", packages)
        self.packages = packages
        self.minimum = minimum_characters

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Cut each package into parts of about `split_bytes` of source code."""
        ranges = []
        for package in self.packages:
            ranges += byte_ranges.cut(package, modules(package), split_bytes)
        return ranges

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the modules that begin in the file range, except those with too little prose."""
        top = folder(file_range.path)
        for path in byte_ranges.items_in_range(modules(file_range.path), file_range, log):
            name = path.relative_to(top).with_suffix("").as_posix()
            text = prose(path)
            if len(text) >= self.minimum:
                yield Document(f"{file_range.path}/{name}.py", text)
            else:
                log["little prose"] += 1


def folder(package: str) -> Path:
    """Return the folder of an installed package, without importing anything.

    Raises:
        InputError: it is not installed.
    """
    if package == STANDARD_LIBRARY:
        return Path(sysconfig.get_paths()["stdlib"])
    top, *inner = package.split(".")
    spec = importlib.util.find_spec(top)  # a name without dots: nothing is imported
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(place, *inner)).is_dir():
            return path
    why = f"package {package} is not installed; install it or remove it from the list"
    raise InputError(why, "corpus.options.packages")


def modules(package: str) -> list[byte_ranges.Marked[Path]]:
    """Return the package's source files, sorted, with their marks and sizes, without its tests."""
    sources = []
    for place, folders, names in os.walk(folder(package)):
        folders[:] = sorted(name for name in folders if name not in _PASSED_OVER)
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith(("test_", "conftest")):
                path = Path(place, name)
                sources.append((path, *places.mark_and_size(path)))
    return sources


def prose(path: Path) -> str:
    """Return the prose of a module's docstrings, one paragraph per line, without repetitions."""
    source = path.read_bytes()
    if b'"""' not in source and b"'''" not in source:
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on invalid escapes in third-party code
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):  # templates and code for other Python versions
            return ""
    texts: dict[str, None] = {}
    for text in documentation(tree):
        texts.update(dict.fromkeys(paragraphs(text)))
    return "\n".join(texts)


def documentation(node: ast.Module | ast.stmt) -> Iterator[str]:
    """Yield the docstrings of a module, its functions, classes and methods, in source order."""
    if isinstance(node, _Documented) and (text := ast.get_docstring(node)):
        yield text
    if isinstance(node, ast.Module | ast.ClassDef | ast.If | ast.Try):
        for inner in node.body:
            yield from documentation(inner)


Block = list[str]  # lines of a paragraph
Blocks = Iterator[Block]
# Sections that hold names and code, not sentences.
_DROPPED_SECTION = re.compile("examples?|references?|methods|see also|shapes?")
_SECTION = re.compile(r"[A-Z][\w -]{2,30}:?$")
_UNDERLINE = re.compile(r"([=\-~^\"'`*+#_.])\1{2,}\s*$")
_TABLE = re.compile(r"(=+( +=+)+|-+( +-+)+|\+[-=+]{3,}|\|.*)\s*$")
# Directives whose body is prose; the bodies of all others are dropped.
_PROSE_DIRECTIVE = re.compile(
    r"\.\. *(note|warning|important|tip|hint|caution|attention|admonition|danger)::", re.IGNORECASE
)
_ENTRY = re.compile(r"(\*{0,2}[A-Za-z_][\w.]*(?:, *\*{0,2}[A-Za-z_][\w.]*)*) *+(?:\([^()]*+\) *+)?:(?!:)")
_FIELD = re.compile(r":(?:param|arg|ivar|cvar|var|returns?|raises?|keyword)\b([^:]*):")
_ITEM = re.compile(r"(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-z][.)])\s+(?=\S)")
_SIGNATURE = re.compile(r"[\w.]+\([^()]*\)(?: *->.*)?$")

_ROLE = re.compile(r"(?<![a-zA-Z:+_-])([a-zA-Z+_-]*+):(?!:`)[a-zA-Z:+_-]++(?<=:)`~?!?([^`<]*+)(?:<[^`>]*+>)?`")
_LINK = re.compile(r"`([^`<]++)<[^`>]*+>`_{0,2}")
_MARKDOWN_LINK = re.compile(r"\[([^\][]+)\]\([^()\s]+\)")
_FOOTNOTE = re.compile(r"(?<!\s)\s*+\[[\w#*]+\]_")
_LITERAL = re.compile(r"(`{1,2})(.+?)\1_{0,2}")
_EMPHASIS = re.compile(r"(?<![\w*\\])(\*{1,2})(?=\S)([^*]+?)(?<=\S)\1(?![\w*])")
_FORMULA = re.compile(r"\\[a-zA-Z]{2,}|\$[^$ ]+\$")
_WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*[.,;:!?)]*$|\([A-Za-z]+$|[aAI]$")


def paragraphs(docstring: str) -> list[str]:
    """Return the prose of a dedented docstring: one string per paragraph, list item or entry."""
    kept = []
    for block in _blocks(docstring.expandtabs().splitlines()):
        raw = " ".join(block)
        text = inline(raw)
        if is_prose(text) and len(_FORMULA.findall(raw)) < 2:
            kept.append(text)
    return kept


def inline(text: str) -> str:
    """Remove the markup of roles, links, literals, emphasis and footnotes."""
    text = _FOOTNOTE.sub("", text)
    text = _ROLE.sub(lambda match: match[1] + match[2].strip(), text)
    text = _LINK.sub(lambda match: match[1].rstrip(), text)
    text = _MARKDOWN_LINK.sub(r"\1", text)
    text = _LITERAL.sub(r"\2", text)
    text = _EMPHASIS.sub(r"\2", text)
    return " ".join(text.replace("\\", "").split()).replace(" . ", ". ")


def is_prose(text: str) -> bool:
    """Return whether a paragraph reads as English: at least five words, and few symbols."""
    tokens = text.split()
    words = sum(1 for token in tokens if _WORD.match(token))
    return words >= 5 and words >= 0.7 * len(tokens)


@dataclass
class _State:
    """State of the scan of a docstring."""

    block: Block = field(default_factory=list)  # lines of the paragraph so far
    base: int = 0  # indent of the paragraph's first line
    entries: bool = False  # that line was `name: ...`
    floor: int | None = None  # lines indented deeper are dropped
    fenced: bool = False
    dropping: bool = False  # until the next blank line
    section: str = ""

    def take(self) -> Blocks:
        """Yield the paragraph, if any, and begin a new one."""
        if self.block and not _DROPPED_SECTION.fullmatch(self.section):
            yield self.block
        self.block = []


def _blocks(lines: list[str]) -> Blocks:
    """Yield the lines of each paragraph, list item and parameter entry, without code and tables."""
    state = _State()
    for number, line in enumerate(lines, 1):
        after = lines[number] if number < len(lines) else ""
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text.startswith(("```", "~~~")):
            state.fenced = not state.fenced
            yield from state.take()
        elif state.fenced:
            continue
        elif not text:
            state.dropping = False
            yield from state.take()
        elif state.floor is not None and indent > state.floor:
            continue
        else:
            state.floor = None
            yield from _line(state, text, indent, after)
    yield from state.take()


def _line(state: _State, text: str, indent: int, after: str) -> Blocks:
    """Process one line outside code; yield the paragraph that it ends, if any."""
    heading = _UNDERLINE.match(after.strip()) is not None and not _UNDERLINE.match(text)
    google = text.endswith(":") and _SECTION.match(text) is not None
    if state.dropping:
        return
    dropped, directive = text.startswith(">>>") or _TABLE.match(text), text.startswith(".. ") or text == ".."
    if not (dropped or directive or heading or google or _UNDERLINE.match(text) or _SIGNATURE.match(text)):
        yield from _prose_line(state, text, indent, after)
        return
    yield from state.take()
    if dropped:
        state.dropping = True
    elif heading or google:
        state.section = text.rstrip(":").lower()
        state.entries = True
        state.base = len(after) - len(after.lstrip())
    elif directive and not _PROSE_DIRECTIVE.match(text):
        state.floor = indent


def _prose_line(state: _State, text: str, indent: int, after: str) -> Blocks:
    """Process one line of prose, which continues the paragraph or begins the next."""
    starts = True
    deeper = bool(after.strip()) and len(after) - len(after.lstrip()) > indent
    aligned = state.entries and indent == state.base  # entries of a list share one indent
    if matched := _FIELD.match(text):
        name = matched[1].split()[-1:]
        text = ": ".join([*name, text[matched.end() :].strip()])
    elif matched := _ITEM.match(text):
        text = text[matched.end() :]
    elif (matched := _ENTRY.match(text)) and (aligned or (deeper and not state.block)):
        rest = text[matched.end() :].strip()
        # A few words after the colon are a type; more are the description.
        text = f"{matched[1]}: {rest}" if len(rest.split()) > 7 or not deeper else f"{matched[1]}:"
        state.entries = True
    else:
        starts = not state.block
        state.entries = state.entries and not starts
    if starts:
        yield from state.take()
        state.base = indent
    if text.endswith("::"):
        text = text[:-1]
        state.floor = indent
    state.block.append(text)
