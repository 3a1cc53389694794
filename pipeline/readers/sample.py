"""The sample corpus: the documentation of Python and of packages that this one needs anyway.

Every installation has this text, so that everything can be tried without a download. A document is
a module: its docstrings in order, as prose. Modules are parsed, never imported.
"""

import ast
import importlib.util
import os
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from pipeline.common.errors import ConfigError, InputError
from pipeline.config import CorpusConfig
from pipeline.readers import Document, FileRange, SkipCounts
from pipeline.readers.io import byte_ranges
from pipeline.text import docstrings

STANDARD_LIBRARY = "python"
_PASSED_OVER = frozenset(
    {"test", "tests", "testing", "idlelib", "lib2to3", "site-packages", "_vendor", "externals"}
)


class Reader:
    """Reads the modules of installed packages.

    The modules of a package, in order of their paths, count as one long file: a split is a range
    of bytes of it, so that packages of any size are read in parallel.
    """

    def __init__(
        self,
        corpus: CorpusConfig,
        source: str,
        *,
        packages: list[str],
        minimum_characters: int = 500,
    ):
        if not isinstance(packages, list):
            raise ConfigError(f"corpus.options.packages={packages}: a list, such as [python,numpy]")
        self.packages = packages
        self.minimum = minimum_characters

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Cut each package into parts of about `split_bytes` of source code."""
        found = []
        for package in self.packages:
            found += byte_ranges.cut(package, (size for _, size in modules(package)), split_bytes)
        return found

    def read(self, split: FileRange, tally: SkipCounts) -> Iterator[Document]:
        """Yield the modules that begin in the split, but those with too little prose."""
        top = folder(split.path)
        for path in byte_ranges.items_in_range(modules(split.path), split):
            name = path.relative_to(top).with_suffix("").as_posix()
            title = ".".join([split.path, *name.split("/")]).removesuffix(".__init__")
            text = prose(path)
            if len(text) >= self.minimum:
                yield Document(f"{split.path}/{name}.py", title, text)
            else:
                tally["little prose"] += 1


def folder(package: str) -> Path:
    """Where a package is installed; nothing is imported to find out.

    Raises:
        InputError: it is not installed.
    """
    if package == STANDARD_LIBRARY:
        return Path(sysconfig.get_paths()["stdlib"])
    top, *inner = package.split(".")
    spec = importlib.util.find_spec(top)  # a name without dots: nothing is imported
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (found := Path(place, *inner)).is_dir():
            return found
    raise InputError(
        f"corpus sample: the package {package} is not installed; install it, or leave it out of "
        "corpus.options.packages"
    )


def modules(package: str) -> list[tuple[Path, int]]:
    """The package's source files and their sizes, in order of their paths, without its tests."""
    found = []
    for place, folders, names in os.walk(folder(package)):
        folders[:] = sorted(name for name in folders if name not in _PASSED_OVER)
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith(("test_", "conftest")):
                path = Path(place, name)
                found.append((path, path.stat().st_size))
    return found


def prose(path: Path) -> str:
    """The prose of a module's docstrings, a paragraph a line; each paragraph stands there once."""
    source = path.read_bytes()
    if b'"""' not in source and b"'''" not in source:
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on escapes in other people's code
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):  # templates and code of other versions
            return ""
    found: dict[str, None] = {}
    for text in documentation(tree):
        found.update(dict.fromkeys(docstrings.paragraphs(text)))
    return "\n".join(found)


def documentation(node: ast.Module | ast.stmt) -> Iterator[str]:
    """The docstrings of a module and of its classes and their methods, in the order of the code."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if text := ast.get_docstring(node):
            yield text
        if isinstance(node, ast.Module | ast.ClassDef):
            for inner in node.body:
                yield from documentation(inner)
    elif isinstance(node, ast.If | ast.Try):
        for inner in node.body:
            yield from documentation(inner)
