"""Speed of wikitext extraction against mwparserfromhell, on one core, in one run.

    python -m benchmarks.data.wikitext DUMP [--pages N]

Rates in CPU time, with wikitext already in memory; MB are bytes of UTF-8. Then what reading the dump itself costs, and
how much of it each part takes.
"""

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path

import mwparserfromhell

from benchmarks.shared import timed
from pipeline.config import CorpusConfig
from pipeline.readers import FileRange, ReadLog, open_corpus, wikipedia
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


def parts_of_reading(path: Path) -> None:
    """Print the rate of reading a dump and the shares of decompressing, of XML and of wikitext."""
    whole, file = FileRange(str(path), 0, path.stat().st_size), CompressedFile(path)
    opened = open_corpus(CorpusConfig(name="wiki", reader="wikipedia", path=str(path), language="en"), "")
    size, decompressed = timed(lambda: sum(len(data) for data, _ in file.read(whole, ReadLog())))
    _, parsed = timed(lambda: sum(1 for _ in wikipedia.pages(file, whole, ReadLog())))
    _, read = timed(lambda: sum(1 for _ in opened.read(whole, ReadLog())))
    shares = (decompressed, parsed - decompressed, read - parsed)
    print(f"\nreading {path.name}: {size / 1e6 / read:.1f} MB of XML a second")
    for name, share in zip(("decompression", "XML", "wikitext"), shares, strict=True):
        print(f"{name:24}{share / read:7.0%}")


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
    parts_of_reading(arguments.dump)


if __name__ == "__main__":
    main()
