"""Lines of text files: what is empty, endless or broken is said with its place."""

import gzip
from pathlib import Path

import pytest

from pipeline.errors import InputError
from pipeline.readers import open_corpus
from pipeline.storage import budget
from tests.pipeline.readers.reading import config, read
from tests.support.refusals import refused


def test_an_empty_compressed_file_is_broken(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "b.jsonl.gz").touch()
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b""))  # whole, of no lines
    with refused(InputError, path=str(tmp_path / "b.jsonl.gz")):
        read(config("jsonl", tmp_path))
    found, tally = read(config("jsonl", tmp_path, on_error="skip"))
    assert [d.text for d in found] == ["a"]
    assert tally == {"broken": 1}
    assert tally.broken[0].startswith(str(tmp_path / "b.jsonl.gz"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_file_without_the_mark_that_its_encoding_needs_is_broken(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One.", encoding)
    (tmp_path / "b.txt").write_text("漢字文書", f"{encoding}-le")  # in any order
    (tmp_path / "c.txt").write_text("Three, szedł.", f"{encoding}-be")
    with refused(InputError, path=str(tmp_path / "b.txt")):
        read(config("lines", tmp_path, encoding=encoding))
    found, tally = read(config("lines", tmp_path, encoding=encoding, on_error="skip"))
    assert [d.text for d in found] == ["One.", "Three, szedł."]
    assert tally == {"broken": 1}
    (tmp_path / "c.txt").unlink()
    found, _ = read(config("lines", tmp_path, encoding=f"{encoding}-le"))
    assert [d.text for d in found] == ["One.", "漢字文書"]


def test_empty_files_are_noted_and_change_no_split(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("One.\n\nTwo.\n")
    corpus = config("lines", tmp_path)
    before = open_corpus(corpus, "").splits(4)
    for name in ("a.txt", "c.txt"):
        (tmp_path / name).touch()
    after = open_corpus(corpus, "").splits(4)
    assert [(s.path, s.start, s.end) for s in after] == [(s.path, s.start, s.end) for s in before]
    found, tally = read(corpus, 4)
    assert [d.text for d in found] == ["One.", "Two."]
    assert not tally
    assert tally.notes == {"empty files": 2}


@pytest.mark.parametrize(
    ("reader", "options", "cure"),
    [("lines", {}, "blank line"), ("text", {"document": "paragraph"}, "corpus.options.document=line")],
)
def test_a_block_without_end_is_refused(
    reader: str, options: dict[str, str], cure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "DOCUMENT", 100 + 9 * budget.KEPT)
    path = tmp_path / "a.txt"
    path.write_text("Short.\n\n" + "é 12345678\n" * 9)  # 99 bytes without line ends
    found, _ = read(config(reader, path, options=options))
    assert len(found) == 2
    path.write_text("Short.\n\n" + "é 12345678\n" * 10)
    with refused(InputError, cure, path=str(path), line=3) as caught:
        read(config(reader, path, options=options))
    assert caught.value.key in ("corpus.reader", "corpus.options.document")


def test_lines_are_counted_by_the_line_ends_of_the_file(tmp_path: Path) -> None:
    for end in ("\n", "\r\n", "\r"):
        path = tmp_path / "a.jsonl"
        path.write_bytes("".join(f'{{"text": "{n}"}}{end}' for n in range(50)).encode() + b"no")
        for split_bytes in (1 << 20, 100):
            with refused(InputError, line=51):
                read(config("jsonl", path), split_bytes)


def test_a_torn_letter_does_not_change_the_encoding_of_a_file(tmp_path: Path) -> None:
    rows = [f'{{"text": "Zürich grüßt {n}."}}\n'.encode() for n in range(40)]
    rows[3] = rows[3].replace("ü".encode(), b"\xc3", 1)
    rows[7] = '{"text": "Früh."}\n'.encode("cp1252")
    (tmp_path / "a.jsonl").write_bytes(b"".join(rows))
    found, tally = read(config("jsonl", tmp_path, language="de"))
    wanted = [f"Zürich grüßt {n}." for n in range(40)]
    wanted[3], wanted[7] = "Z\ufffdrich grüßt 3.", "Früh."
    assert [d.text for d in found] == wanted
    assert tally.notes == {
        "lines with letters that could not be decoded": 1,
        "lines not in the file's encoding, read as cp1252": 1,
    }
