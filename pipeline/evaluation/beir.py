"""Retrieval sets in the layout of BEIR (Thakur et al. 2021): documents, queries, and which of these answer which."""

import gzip
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config import TaskConfig
from pipeline.errors import InputError, readable
from pipeline.evaluation.table_files import text_of
from pipeline.storage import strict_json

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
CUT = 10  # documents that are read of a ranking


@dataclass(frozen=True)
class RetrievalSet:
    """The documents and the judged queries of a set, by id."""

    documents: dict[str, str]
    queries: dict[str, str]
    judged: dict[str, dict[str, int]]  # relevance of documents, by query
    unjudged: int  # queries left out
    unknown: int  # judged documents that are not there: never found


def files_of(data: Path | str, task: TaskConfig) -> list[Path]:
    """Return the files of a set: documents, queries, judgements; each may end with .gz.

    Raises:
        InputError: one is missing.
    """
    for folder in (Path(data) / task.folder, Path(data)):
        files = [folder / name for name in (CORPUS, QUERIES, task.dev)]
        files = [file if file.is_file() else Path(f"{file}.gz") for file in files]
        if all(file.is_file() for file in files):
            return files
    lost = next(file for file in files if not file.is_file())
    cure = f"set data to a folder with {CORPUS}, {QUERIES}, {task.dev}, or task.dev=qrels/FILE to other judgements"
    raise InputError(f"no {lost.stem} there; {cure}", "data", data)


def read(data: Path | str, task: TaskConfig) -> RetrievalSet:
    """Read a set.

    Raises:
        InputError: a file is missing or malformed, or a query that is judged is not there.
    """
    corpus, queries, judgements = files_of(data, task)
    documents, every, judged = texts(corpus), texts(queries), read_judgements(judgements)
    if lost := next((name for name in judged if name not in every), None):
        raise InputError(f"judges query {lost!r}, which is not in {QUERIES}", path=judgements)
    places = [name in documents for one in judged.values() for name in one]
    if not any(places):
        raise InputError(f"judges no document that is in {corpus.name}", path=judgements)
    asked = {name: every[name] for name in judged}
    return RetrievalSet(documents, asked, judged, len(every) - len(asked), places.count(False))


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file in UTF-8 that are not empty, and their numbers."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with readable(path), opened(path, "rt", encoding="utf-8-sig", newline="\n") as file:
            yield from ((number, line.rstrip("\r\n")) for number, line in enumerate(file, 1) if line.strip())
    except (EOFError, zlib.error) as error:
        raise InputError(f"is not a whole file of gzip ({error}); download it again", path=path) from error


def texts(path: Path) -> dict[str, str]:
    """Return the texts of a file of objects with `_id` and `text`, after their `title` where they have one.

    Raises:
        InputError: a line is not such an object, two have one id, or none is there.
    """
    by_id: dict[str, str] = {}
    for number, line in lines_of(path):
        try:
            row: Any = strict_json.parse_line(line)
            if not (name := text_of(row["_id"])) or name in by_id:
                raise ValueError(f"a second {name!r}" if name else "it is empty")
            by_id[name] = text_of(" ".join((text_of(row.get("title")), row["text"]))).strip()  # others: a TypeError
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problem = f"must be an object with an _id of its own, and text ({error})"
            raise InputError(problem, path=path, line=number) from error
    if not by_id:
        raise InputError("has no objects", path=path)
    return by_id


def read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """Return the relevance of documents by query: lines of query, document and a whole number, below a header.

    Raises:
        InputError: a line has other fields, or there is none.
    """
    judgements: dict[str, dict[str, int]] = {}
    for number, line in lines_of(path):
        fields = line.split("\t")
        if number == 1 and not any(map(str.isdigit, fields[-1])):
            continue
        if len(fields) != 3 or not re.fullmatch(r"[+-]?\d+", fields[-1], re.ASCII):  # int() takes 1_000 too
            raise InputError("must be query, document and a whole number, with tabs", path=path, line=number)
        query, document, value = fields
        known = judgements.setdefault(query, {}).setdefault(document, int(value))
        if known != int(value):
            raise InputError(f"{value} for document {document!r}, which had {known}", path=path, line=number)
    if not judgements:
        raise InputError("judges nothing", path=path)
    return judgements


def judge(hits: list[str], judged: dict[str, int]) -> dict[str, float]:
    """Return the metrics of a ranking of documents, as trec_eval has them: gains are linear, none is below 0."""
    gains = [max(judged.get(name, 0), 0) for name in hits[:CUT]]
    ideal = sorted((max(value, 0) for value in judged.values()), reverse=True)[:CUT]
    relevant = sum(value > 0 for value in judged.values())
    best, got = (sum(gain / math.log2(rank) for rank, gain in enumerate(some, 2)) for some in (ideal, gains))
    return {
        "ndcg@10": got / best if best else 0.0,
        "recall@1": sum(gain > 0 for gain in gains[:1]) / max(relevant, 1),
        "recall@10": sum(gain > 0 for gain in gains) / max(relevant, 1),
        "mrr@10": next((1 / rank for rank, gain in enumerate(gains, 1) if gain), 0.0),
    }
