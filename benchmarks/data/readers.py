"""Speed of the readers of formats against a library of their field, on one core, in one run.

    python -m benchmarks.data.readers --text FOLDER --dump DUMP [--megabytes N] [--forms FORM …]

Each format holds the same text, of the .txt files of a folder. Rates are MB of UTF-8 text per second of CPU time, the
best of some runs that take turns, so that other load strikes all alike; ratios follow in brackets. `wikitext` is the
text of a dump, as many MB as come out of it.
"""

import argparse
import csv
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import conllu
import pyarrow as pa
import pyarrow.parquet as pq
from fastwarc.warc import ArchiveIterator, WarcRecordType
from libzim.reader import Archive
from lxml import etree
from resiliparse.extract.html2text import extract_plain_text
from warcio.archiveiterator import ArchiveIterator as Warcio

from benchmarks.shared import timed
from pipeline.config import CorpusConfig
from pipeline.readers import Document, ReadLog, open_corpus
from tests.support import formats

REPEATS = 5


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


def documents(path: Path, corpus: str) -> Iterator[Document]:
    """Yield the documents of a file, as `prepare` reads it."""
    opened = open_corpus(CorpusConfig(name="c", reader=corpus, path=str(path)), "")
    return (document for each in opened.splits(1 << 40) for document in opened.read(each, ReadLog()))


def _warcio(path: Path) -> Iterator[tuple[str, str]]:
    with path.open("rb") as file:
        for record in Warcio(file):
            if record.rec_type == "conversion":
                yield record.rec_headers["WARC-Target-URI"], record.content_stream().read().decode()


def _fastwarc(path: Path) -> Iterator[tuple[str, str]]:
    for record in ArchiveIterator(str(path), record_types=WarcRecordType.conversion):
        yield record.headers["WARC-Target-URI"], record.reader.read().decode()


def _lxml(element: str, *parts: str) -> Callable[[Path], Iterator[str]]:
    def read(path: Path) -> Iterator[str]:
        for _, found in etree.iterparse(path, tag=f"{{*}}{element}"):
            yield "\n".join("".join(each.itertext()) for part in parts for each in found.iter(f"{{*}}{part}"))
            found.clear()

    return read


def _posts(path: Path) -> Iterator[str]:
    for _, row in etree.iterparse(path, tag="row"):
        yield extract_plain_text(row.get("Body"), main_content=True)
        row.clear()


def _pages(path: Path) -> Iterator[str]:
    for record in ArchiveIterator(str(path), record_types=WarcRecordType.response):
        yield extract_plain_text(record.reader.read().decode(), main_content=True)


def _page(path: Path) -> Iterator[str]:
    yield extract_plain_text(path.read_text(encoding="utf-8"), main_content=True)


def _libzim(path: Path) -> Iterator[str]:
    archive = Archive(path)
    entries = map(archive._get_entry_by_id, range(archive.entry_count))
    items = (entry.get_item() for entry in entries if not entry.is_redirect)
    for item in items:
        if item.mimetype == "text/html":
            yield extract_plain_text(bytes(item.content).decode(), main_content=True)


def _json(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        yield from (row["text"] for row in map(json.loads, file) if "text" in row)


def _parquet(path: Path) -> Iterator[str]:
    for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
        yield from batch.column("text").to_pylist()


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
    "pubmed": {"lxml": _lxml("PubmedArticle", "ArticleTitle", "AbstractText")},
    "jats": {"lxml": _lxml("article", "p")},
    "tei": {"lxml": _lxml("TEI", "p")},
    "conllu": {"conllu": _conllu},
    "cirrussearch": {"json": _json},
    "jsonl": {"json": _json},
    "parquet": {"pyarrow": _parquet},
    "html": {"resiliparse": _page},
    "stackexchange": {"lxml, resiliparse": _posts},
    "zim": {"libzim, resiliparse": _libzim},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--dump", type=Path, required=True)
    parser.add_argument("--forms", nargs="*", choices=PEERS)
    arguments = parser.parse_args()
    pieces = texts(arguments.text, arguments.megabytes)
    size = sum(len(piece.encode()) for piece in pieces) / 1e6

    in_dump = sum(len(page.text.encode()) for page in documents(arguments.dump, "wikipedia")) / 1e6
    with tempfile.TemporaryDirectory() as name:
        for form in arguments.forms or PEERS:
            corpus, one = (formats.MANY | formats.ONE)[form][0], form in formats.ONE
            # Of pages and works, one in a file, as long as long ones are.
            parts = ["\n".join(pieces[at : at + 200]) for at in range(0, len(pieces), 200)] if one else [""]
            files = list[Path]()
            for number, part in enumerate(parts):
                (folder := Path(name, f"{form} {number}")).mkdir()
                files.append(formats.write(folder, form, [part] if one else pieces))
            peers = PEERS[form] | {"ours": lambda path, corpus=corpus: documents(path, corpus)}
            works: dict[str, Callable[[], object]] = {
                peer: lambda files=files, read=read: [sum(1 for _ in read(file)) for file in files]  # type: ignore[misc]
                for peer, read in peers.items()
            }
            works["wikitext"] = lambda: sum(1 for _ in documents(arguments.dump, "wikipedia"))
            seconds = dict.fromkeys(works, float("inf"))
            for _, (peer, work) in itertools.product(range(REPEATS), works.items()):
                seconds[peer] = min(seconds[peer], timed(work)[1])
            rates = {peer: (in_dump if peer == "wikitext" else size) / each for peer, each in seconds.items()}
            mine = rates.pop("ours")
            others = ", ".join(f"{peer} {rate:.1f} ({mine / rate:.2f})" for peer, rate in rates.items())
            print(f"{form:<14} {mine:7.1f}  {others}", flush=True)
            for file in files:
                file.unlink()


if __name__ == "__main__":
    main()
