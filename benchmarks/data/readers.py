"""Speed of the readers of formats against a library of their field, on one core, in one run.

    python -m benchmarks.data.readers --text FOLDER [--megabytes N]

Each format holds the same text, of the .txt files of a folder. Rates are MB of UTF-8 text per second of CPU time, the
best of three runs; those of wikitext are of the same text without markup.
"""

import argparse
import csv
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import conllu
import pyarrow as pa
from fastwarc.warc import ArchiveIterator, WarcRecordType
from lxml import etree
from resiliparse.extract.html2text import extract_plain_text
from warcio.archiveiterator import ArchiveIterator as Warcio

from benchmarks.shared import timed
from pipeline.config import CorpusConfig
from pipeline.readers import ReadLog, open_corpus
from tests.support import formats

REPEATS = 3


def texts(folder: Path, megabytes: int) -> list[str]:
    """Return pieces of some paragraphs of the .txt files below a folder, together of a size."""
    lines = (line for path in sorted(folder.rglob("*.txt")) for line in path.read_text("utf-8", "replace").split("\n"))
    said = (" ".join(line.split()) for line in lines)
    kept, size = list[str](), 0
    for line in itertools.cycle(filter(None, said)):
        kept.append("".join(letter for letter in line if letter.isprintable()))
        size += len(line.encode())
        if size >= megabytes * 1_000_000:
            return ["\n".join(kept[at : at + 20]) for at in range(0, len(kept), 20)]
    raise SystemExit(f"no text in {folder}")


def ours(path: Path, corpus: str) -> int:
    """Read a file as `prepare` does; return the number of documents."""
    opened = open_corpus(CorpusConfig(name="c", reader=corpus, path=str(path)), "")
    return sum(1 for each in opened.splits(1 << 40) for _ in opened.read(each, ReadLog()))


def _warcio(path: Path) -> Iterator[tuple[str, str]]:
    with path.open("rb") as file:
        for record in Warcio(file):
            if record.rec_type == "conversion":
                yield record.rec_headers["WARC-Target-URI"], record.content_stream().read().decode()


def _fastwarc(path: Path) -> Iterator[tuple[str, str]]:
    for record in ArchiveIterator(str(path), record_types=WarcRecordType.conversion):
        yield record.headers["WARC-Target-URI"], record.reader.read().decode()


def _lxml(path: Path) -> Iterator[str]:
    for _, element in etree.iterparse(path, tag="PubmedArticle"):
        yield "".join(element.itertext("ArticleTitle", "AbstractText"))
        element.clear()


def _pages(path: Path) -> Iterator[str]:
    for record in ArchiveIterator(str(path), record_types=WarcRecordType.response):
        yield extract_plain_text(record.reader.read().decode(), main_content=True)


def _csv(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from (row["text"] for row in csv.DictReader(file))


def _arrow(path: Path) -> Iterator[str]:
    for batch in pa.ipc.open_stream(pa.memory_map(str(path))):
        yield from batch.column("text").to_pylist()


def _conllu(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        yield from (sentence.metadata["text"] for sentence in conllu.parse_incr(file))


PEERS: dict[str, dict[str, Callable[[Path], Iterator[object]]]] = {
    "wet": {"warcio": _warcio, "fastwarc": _fastwarc},
    "warc": {"resiliparse": _pages},
    "csv": {"csv": _csv},
    "arrow stream": {"pyarrow": _arrow},
    "pubmed": {"lxml": _lxml},
    "conllu": {"conllu": _conllu},
    **{form: {} for form in ("jats", "cirrussearch", "stackexchange", "zim")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--megabytes", type=int, default=10)
    arguments = parser.parse_args()
    pieces = texts(arguments.text, arguments.megabytes)
    size = sum(len(piece.encode()) for piece in pieces) / 1e6

    def rate(work: Callable[[], object]) -> float:
        return size / min(timed(work)[1] for _ in range(REPEATS))

    with tempfile.TemporaryDirectory() as folder:
        for form, peers in PEERS.items():
            path = formats.write(Path(folder), form, pieces)
            mine = rate(lambda path=path, form=form: ours(path, formats.MANY[form][0]))  # type: ignore[misc]
            print(f"{form:<14} {mine:8.1f} MB/s", end="", flush=True)
            for name, read in peers.items():
                other = rate(lambda path=path, read=read: sum(1 for _ in read(path)))  # type: ignore[misc]
                print(f", {name} {other:.1f} ({mine / other:.2f})", end="", flush=True)
            print()
            path.unlink()


if __name__ == "__main__":
    main()
