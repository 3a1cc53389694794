"""Speed of wikitext extraction against mwparserfromhell, on one core, in one run.

    python -m benchmarks.data.wikitext DUMP [--pages N]

Rates in CPU time, with wikitext already in memory; MB are bytes of UTF-8.
"""

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path

import mwparserfromhell

from benchmarks.shared import timed
from pipeline.readers import FileRange, ReadLog, wikipedia
from pipeline.readers.io.compressed import CompressedFile
from pipeline.text.wikitext import Extractor


def articles(path: Path, count: int) -> list[str]:
    """Return the wikitext of the first `count` articles of a dump."""
    pages = wikipedia.pages(CompressedFile(path), FileRange(str(path), 0, path.stat().st_size), ReadLog())
    texts = (page.text for page in pages if page.namespace in (0, None) and not page.redirect)
    return list(itertools.islice(texts, count))


def theirs(wikitext: str) -> str:
    """Extract text with mwparserfromhell's strip_code."""
    return str(mwparserfromhell.parse(wikitext).strip_code())


def speed(function: Callable[[str], str], texts: list[str], repeats: int) -> float:
    """Return the best MB/s of CPU time of `repeats` runs."""
    size = sum(len(text.encode()) for text in texts) / 1e6
    seconds = [timed(lambda: [function(text) for text in texts])[1] for _ in range(repeats)]
    return size / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dump", type=Path)
    parser.add_argument("--pages", type=int, default=1000)
    arguments = parser.parse_args()
    texts = articles(arguments.dump, arguments.pages)
    size = sum(len(text.encode()) for text in texts) / 1e6
    ours = speed(Extractor().text, texts, repeats=5)
    other = speed(theirs, texts, repeats=1)
    print(f"{len(texts)} articles, {size:.1f} MB of wikitext")
    print(f"pipeline.text.wikitext  {ours:8.2f} MB/s")
    print(f"mwparserfromhell        {other:8.2f} MB/s")
    print(f"ratio                   {ours / other:8.1f}")


if __name__ == "__main__":
    main()
