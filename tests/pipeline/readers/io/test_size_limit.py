"""A limit chooses the same documents however the corpus's path is spelled."""

import bz2
import os
import zipfile
from pathlib import Path

import pytest

from pipeline.config import CorpusConfig
from tests.pipeline.readers.reading import config, read

CHOSEN = ["0", "1", "5"]  # a function of the names below "many": users rely on it


def chosen(place: str) -> list[str]:
    """Return the first words of the documents that a limit leaves."""
    found, _ = read(CorpusConfig(name="c", reader="text", path=place, limit="3000"), 400)
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
    here = "./many many/ .//many/. many/*.txt ./many/*.txt .//many//*.txt"
    for place in (*here.split(), *(f"{folder}/{name}" for name in ("many", "/many/", "/many/*.txt", "./many"))):
        assert chosen(place) == CHOSEN, place


def test_a_name_need_not_be_utf_8(folder: Path) -> None:
    plain = folder / "many" / "5.txt"
    plain.rename(os.fsdecode(os.fsencode(folder) + b"/many/\xff.txt"))
    assert len(chosen("many")) == 3


def names(reader: str, place: Path, limit: str, split_bytes: int = 400) -> list[str]:
    """Return the ids of the documents that a limit leaves."""
    return [document.id for document in read(config(reader, place, limit=limit), split_bytes)[0]]


@pytest.mark.parametrize("reader", ["text", "books"])
def test_an_archive_next_to_a_small_file_is_read_in_part(reader: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for number in range(50):
            archive.writestr(f"{number}.txt", f"{number} " + "word " * 200)
    alone = names(reader, tmp_path, "10kB")
    assert 5 < len(alone) < 15
    loose = [tmp_path / f"note{number}.txt" for number in range(4)]
    for path in loose:
        path.write_text("a few words")
    found = names(reader, tmp_path, "10kB")
    assert set(map(str, loose)) & set(found), "none of them is before the archive"
    assert found[-len(alone) :] == alone
    assert len(names(reader, tmp_path, "1GB")) == 54


PAGE = "<page><title>A</title><ns>0</ns><id>7</id><revision><text>Words.</text></revision></page>"
OTHER = {
    "wikipedia": ("dump.xml", f"<mediawiki>{PAGE}</mediawiki>", "{}-index.txt.bz2"),
    "wikiextractor": ("wiki_00", '<doc id="7" title="A">\nA\n\nWords.\n</doc>\n', "notes{}"),
}


@pytest.mark.parametrize("reader", OTHER)
def test_files_of_another_kind_do_not_count(reader: str, tmp_path: Path) -> None:
    name, content, other = OTHER[reader]
    (tmp_path / name).write_text(content)
    for number in range(9):
        (tmp_path / other.format(number)).write_bytes(bz2.compress(b"1:2:T"))
    assert names(reader, tmp_path, "1") == ["c:7"]
