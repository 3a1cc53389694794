"""A limit chooses the same documents however the corpus's path is spelled."""

import os
from pathlib import Path

import pytest

from pipeline.config import CorpusConfig
from pipeline.readers import SkipCounts, open_corpus

CHOSEN = ["0", "1", "5"]  # a function of the names below "many": users rely on it


def chosen(place: str) -> list[str]:
    """Return the first words of the documents that a limit leaves."""
    reader = open_corpus(CorpusConfig(name="c", reader="text", path=place, limit="3000"), "")
    found = [d for split in reader.splits(400) for d in reader.read(split, SkipCounts())]
    return sorted(document.text.split()[0] for document in found)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "many").mkdir()
    for number in range(12):
        (tmp_path / "many" / f"{number}.txt").write_text(f"{number} " + "word " * 200)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_spelling_of_a_path_changes_no_document(folder: Path) -> None:
    assert chosen("many") == CHOSEN
    for place in (
        "./many", "many/", ".//many/.", "many/*.txt", "./many/*.txt", ".//many//*.txt",
        f"{folder}/many", f"{folder}//many/", f"{folder}//many/*.txt", f"{folder}/./many",
    ):  # fmt: skip
        assert chosen(place) == CHOSEN, place


def test_a_name_need_not_be_utf_8(folder: Path) -> None:
    plain = folder / "many" / "5.txt"
    plain.rename(os.fsdecode(os.fsencode(folder) + b"/many/\xff.txt"))
    assert len(chosen("many")) == 3
