"""The sample corpus: the documentation of Python and of packages that this one depends on.

Every installation has this text, so everything can be tried without a download. A document is the
prose of one module's docstrings, in order. Modules are parsed, never imported.
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
_PASSED_OVER = frozenset({"test", "tests", "testing", "idlelib", "lib2to3", "site-packages", "_vendor", "externals"})


class Reader:
    """Reader of the modules of installed packages.

    The modules of a package, sorted by path, count as one long file. A split is a byte range of it,
    so packages of any size are read in parallel.
    """

    def __init__(self, corpus: CorpusConfig, source: str, *, packages: list[str], minimum_characters: int = 500):
        if not isinstance(packages, list):
            raise ConfigError("must be a list, such as [python,numpy]", "corpus.options.packages", packages)
        self.packages = packages
        self.minimum = minimum_characters

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Cut each package into parts of about `split_bytes` of source code."""
        found = []
        for package in self.packages:
            found += byte_ranges.cut(package, (size for _, size in modules(package)), split_bytes)
        return found

    def read(self, split: FileRange, tally: SkipCounts) -> Iterator[Document]:
        """Yield the modules that begin in the split, except those with too little prose."""
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
    """Return the folder of an installed package, without importing anything.

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
        f"package {package} is not installed; install it or remove it from the list", "corpus.options.packages"
    )


def modules(package: str) -> list[tuple[Path, int]]:
    """Return the package's source files, sorted, and their sizes, without its tests."""
    found = []
    for place, folders, names in os.walk(folder(package)):
        folders[:] = sorted(name for name in folders if name not in _PASSED_OVER)
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith(("test_", "conftest")):
                path = Path(place, name)
                found.append((path, path.stat().st_size))
    return found


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
    found: dict[str, None] = {}
    for text in documentation(tree):
        found.update(dict.fromkeys(docstrings.paragraphs(text)))
    return "\n".join(found)


def documentation(node: ast.Module | ast.stmt) -> Iterator[str]:
    """Yield the docstrings of a module, its functions, classes and methods, in source order."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if text := ast.get_docstring(node):
            yield text
        if isinstance(node, ast.Module | ast.ClassDef):
            for inner in node.body:
                yield from documentation(inner)
    elif isinstance(node, ast.If | ast.Try):
        for inner in node.body:
            yield from documentation(inner)
