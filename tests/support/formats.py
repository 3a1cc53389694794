"""A sample of each format that readers take, with the same three texts, and the corpus that reads it."""

import bz2
import csv
import gzip
import io
import itertools
import json
from collections.abc import Callable
from html import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TEXTS = [
    f"The keeper of lamp {n} counted {'very ' * (n * 5 % 17)}many boats.\nNobody in the harbour slept & waited <{n}>."
    for n in range(7)
]
Made = Callable[[Path, list[str]], None]


def _paragraphs(text: str, tag: str = "p") -> str:
    return "".join(f"<{tag}>{escape(line)}</{tag}>" for line in text.split("\n"))


def _csv(separator: str, **more: object) -> Made:
    def make(path: Path, texts: list[str]) -> None:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter=separator, **more)  # type: ignore[arg-type]
            writer.writerows([["id", "text"], *enumerate(texts)])

    return make


def _arrow(new: Callable[..., object]) -> Made:
    def make(path: Path, texts: list[str]) -> None:
        table = pa.table({"id": range(len(texts)), "text": texts})
        with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:  # type: ignore[attr-defined]
            writer.write_table(table, 2)

    return make


def _warc(kind: str, gz: bool) -> Made:
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    def make(path: Path, texts: list[str]) -> None:
        with path.open("wb") as file:
            writer = WARCWriter(file, gzip=gz)
            writer.write_record(writer.create_warcinfo_record(path.name, {"software": "test"}))
            for n, text in enumerate(texts):
                body, headers = text.encode(), None
                if kind == "response":
                    media = [("Content-Type", "text/html; charset=utf-8")]
                    headers = StatusAndHeaders("200 OK", media, protocol="HTTP/1.0")
                    body = f"<html><body>{_paragraphs(text)}</body></html>".encode()
                media_type = "text/plain" if headers is None else "application/http; msgtype=response"
                record = writer.create_warc_record(
                    f"https://e.example/{n}", kind, io.BytesIO(body), len(body), media_type, http_headers=headers
                )
                writer.write_record(record)

    return make


def _text(form: Callable[[list[str]], str], pack: Callable[[bytes], bytes] = bytes) -> Made:
    def make(path: Path, texts: list[str]) -> None:
        path.write_bytes(pack(form(texts).encode()))

    return make


def _pubmed(texts: list[str]) -> str:
    def record(n: int, text: str) -> str:
        title, *parts = (escape(line) for line in text.split("\n"))
        abstract = "".join(f'<AbstractText Label="A">{part}</AbstractText>' for part in parts)
        return (
            f'<PubmedArticle><MedlineCitation><PMID Version="1">{n}</PMID><Article><ArticleTitle>{title}'
            f"</ArticleTitle><Abstract>{abstract}</Abstract></Article></MedlineCitation></PubmedArticle>\n"
        )

    records = "".join(map(record, itertools.count(), texts))
    return f"<?xml version='1.0'?>\n<PubmedArticleSet>\n{records}</PubmedArticleSet>\n"


def _jats(texts: list[str]) -> str:
    articles = "".join(f"<article><body><sec>{_paragraphs(text)}</sec></body></article>\n" for text in texts)
    return f"<pmc-articleset>{articles}</pmc-articleset>"


def _conllu(texts: list[str]) -> str:
    def sentence(line: str) -> str:
        words = (f"{n}\t{word}{chr(9) + '_':s}" + "\t_" * 7 for n, word in enumerate(line.split(" "), 1))
        return f"# text = {line}\n" + "\n".join(words) + "\n\n"

    return "".join(f"# newdoc id = d{n}\n" + "".join(map(sentence, t.split("\n"))) for n, t in enumerate(texts))


def _cirrus(texts: list[str]) -> str:
    rows = ([{"index": {"_id": str(n)}}, {"namespace": 0, "text": text}] for n, text in enumerate(texts))
    return "".join(json.dumps(row) + "\n" for pair in rows for row in pair)


def _posts(texts: list[str]) -> str:
    rows = (f'  <row Id="{n}" PostTypeId="1" Body="{escape(_paragraphs(text))}" />\n' for n, text in enumerate(texts))
    head = "\ufeff<?xml version='1.0' encoding='utf-8'?>\n<!DOCTYPE posts SYSTEM 'posts.dtd'>\n"
    return f"{head}<posts>\n{''.join(rows)}</posts>\n"


def _html(texts: list[str]) -> str:
    return f"<html><body>{_paragraphs(texts[0])}</body></html>"


def _tei(texts: list[str]) -> str:
    return f'<TEI xmlns="http://www.tei-c.org/ns/1.0"><text><body>{_paragraphs(texts[0])}</body></text></TEI>'


# Corpus, name of the file, what writes it; formats with many documents in a file.
MANY: dict[str, tuple[str, str, Made]] = {
    "csv": ("csv", "a.csv", _csv(",")),
    "csv of semicolons": ("csv", "a.csv", _csv(";", quoting=csv.QUOTE_ALL)),
    "arrow file": ("arrow", "a.arrow", _arrow(pa.ipc.new_file)),
    "arrow stream": ("arrow", "a.arrow", _arrow(pa.ipc.new_stream)),
    "wet": ("warc", "a.warc.wet.gz", _warc("conversion", True)),
    "plain wet": ("warc", "a.wet", _warc("conversion", False)),
    "warc": ("warc", "a.warc.gz", _warc("response", True)),
    "pubmed": ("pubmed", "a.xml", _text(_pubmed)),
    "pubmed gz": ("pubmed", "a.xml.gz", _text(_pubmed, gzip.compress)),
    "jats": ("jats", "a.xml", _text(_jats)),
    "conllu": ("conllu", "a.conllu", _text(_conllu)),
    "cirrussearch": ("cirrussearch", "a.json", _text(_cirrus)),
    "cirrussearch bz2": ("cirrussearch", "a.json.bz2", _text(_cirrus, bz2.compress)),
    "stackexchange": ("stackexchange", "Posts.xml", _text(_posts)),
}
ONE: dict[str, tuple[str, str, Made]] = {"html": ("html", "a.html", _text(_html)), "tei": ("tei", "a.xml", _text(_tei))}


def pages(path: Path, texts: list[str]) -> None:
    """Write a ZIM file of pages."""
    from libzim.writer import Creator, Hint, Item, StringProvider

    class Page(Item):  # type: ignore[misc]
        def __init__(self, number: int, text: str):
            super().__init__()
            self.number, self.text = number, text

        def get_path(self) -> str:
            return f"page{self.number}"

        def get_title(self) -> str:
            return f"Page {self.number}"

        def get_mimetype(self) -> str:
            return "text/html"

        def get_contentprovider(self) -> StringProvider:
            return StringProvider(f"<html><body>{_paragraphs(self.text)}</body></html>")

        def get_hints(self) -> dict[Hint, bool]:
            return {Hint.FRONT_ARTICLE: True}

    with Creator(path).config_indexing(False, "en") as creator:
        creator.set_mainpath("page0")
        for number, text in enumerate(texts):
            creator.add_item(Page(number, text))
        creator.add_redirection("alias", "Alias", "page1", {Hint.FRONT_ARTICLE: True})


MANY |= {
    "jsonl": ("jsonl", "a.jsonl", _text(lambda texts: "".join(json.dumps({"text": each}) + "\n" for each in texts))),
    "parquet": ("parquet", "a.parquet", lambda path, texts: rows(path, texts)),
}
MANY["zim"] = ("zim", "a.zim", pages)


def rows(path: Path, texts: list[str]) -> None:
    """Write a Parquet file."""
    pq.write_table(pa.table({"text": texts}), path, row_group_size=2)


def write(folder: Path, form: str, texts: list[str] = TEXTS) -> Path:
    """Write the sample of a format; return the file."""
    _, name, make = (MANY | ONE)[form]
    (folder / name).unlink(missing_ok=True)
    make(folder / name, texts)
    return folder / name
