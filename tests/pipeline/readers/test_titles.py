"""Readers keep the title of a document where its format has one."""

from pathlib import Path

import pytest

from pipeline import readers
from pipeline.config import CorpusConfig

WORDS = "\nA line of the text that follows.\n"


@pytest.mark.parametrize(
    ("reader", "name", "text", "title"),
    [
        ("wikiextractor", "wiki_00", f'<doc id="1" title="A &amp; B">\nA & B\n{WORDS}</doc>\n', "A & B"),
        ("books", "a.md", f"# Under the Sea\n{WORDS}", "Under the Sea"),
        ("books", "a.txt", f"Title: Under the Sea\n{WORDS}", "Under the Sea"),
        ("books", "a.txt", WORDS, ""),
        ("jsonl", "a.jsonl", '{"text": "A line.", "title": "Under the Sea"}\n', "Under the Sea"),
        ("jsonl", "a.jsonl", '{"text": "A line.", "title": 7}\n', ""),
    ],
)
def test_a_title_is_kept(tmp_path: Path, reader: str, name: str, text: str, title: str) -> None:
    (tmp_path / name).write_text(text)
    opened = readers.open_corpus(CorpusConfig(name="x", reader=reader, path=str(tmp_path / name)), "")
    (file_range,) = opened.splits(1 << 40)
    assert [document.title for document in opened.read(file_range, readers.ReadLog())] == [title]
