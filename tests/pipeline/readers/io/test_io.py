"""Files as bytes and lines: packed, too large, of any line end."""

import bz2
import gzip
import itertools
import os
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import CorpusConfig
from pipeline.errors import InputError
from pipeline.readers import FileRange, open_corpus
from pipeline.readers.io import compressed
from pipeline.storage import budget
from tests.pipeline.readers.reading import config, read
from tests.support.refusals import refused

TEXT = "".join(f"line {number}\n" for number in range(2000)).encode()


def owned(split):
    return b"".join(data for data, is_owned in compressed.CompressedFile(split.path).read(split) if is_owned)


def write(path, data):
    path.write_bytes(data)
    return path


@given(streams=st.integers(1, 9), cuts=st.lists(st.integers(0, 10_000), max_size=6))
def test_any_ranges_of_a_multistream_file_own_every_byte_once(tmp_path_factory, streams, cuts):
    step = -(-len(TEXT) // streams)
    data = b"".join(bz2.compress(TEXT[at : at + step]) for at in range(0, len(TEXT), step))
    path = write(tmp_path_factory.mktemp("dump") / "a.bz2", data)
    bounds = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    parts = [FileRange(str(path), a, b) for a, b in itertools.pairwise(bounds)]
    assert b"".join(map(owned, parts)) == TEXT


def test_only_files_that_can_be_read_in_parts_are_cut(tmp_path):
    many = write(tmp_path / "many", bz2.compress(TEXT[:9000]) + bz2.compress(TEXT[9000:]))
    one = write(tmp_path / "one", bz2.compress(TEXT))
    zipped = write(tmp_path / "zipped", gzip.compress(TEXT))
    plain = write(tmp_path / "plain", TEXT)
    counts = [len(compressed.CompressedFile(path).ranges(1000)) for path in (many, one, zipped, plain)]
    assert counts[0] > 1
    assert (counts[1:3], counts[3]) == ([1, 1], round(len(TEXT) / 1000))
    assert len(compressed.CompressedFile(plain).ranges(1000, seekable_text=False)) == 1


def test_what_follows_a_part_is_read_on_and_marked(tmp_path):
    path = write(tmp_path / "a", bz2.compress(b"one ") + bz2.compress(b"two"))
    assert list(compressed.CompressedFile(path).read(FileRange(str(path), 0, 1))) == [(b"one ", True), (b"two", False)]


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress])
def test_members_in_a_row_are_one_text_and_padding_is_none(pack, tmp_path):
    data = pack(TEXT[:9000]) + pack(TEXT[9000:]) + b"\0" * 512
    path = write(tmp_path / "a", data)
    assert owned(FileRange(str(path), 0, len(data))) == TEXT


def test_a_header_between_two_reads_is_whole(tmp_path):
    """igzip takes the checksum of a header that it sees in two parts for a wrong one."""
    name = b"\x1f\x8b\x08\x0a" + b"\0" * 6 + b"name\0"
    header = name + (zlib.crc32(name) & 0xFFFF).to_bytes(2, "little")
    first = gzip.compress(os.urandom(compressed.CHUNK - 200), 0).ljust(compressed.CHUNK - 5, b"\0")
    path = write(tmp_path / "a", first + header + gzip.compress(TEXT)[10:])
    assert owned(FileRange(str(path), 0, path.stat().st_size)).endswith(TEXT)


@pytest.mark.parametrize("padding", [1, compressed.CHUNK, 2 * compressed.CHUNK + 7])
def test_padding_of_any_length_hides_nothing_and_belongs_to_no_part(padding, tmp_path):
    first, second = bz2.compress(TEXT[:9000]), bz2.compress(TEXT[9000:])
    data = first + b"\0" * padding + second
    path = write(tmp_path / "a", data)
    assert owned(FileRange(str(path), 0, len(data))) == TEXT
    for cut in (len(first), len(first) + 1, len(first) + padding):
        parts = [FileRange(str(path), 0, cut), FileRange(str(path), cut, len(data))]
        assert list(map(owned, parts)) == [TEXT[:9000], TEXT[9000:]]


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress])
def test_a_file_cut_off_or_damaged_is_an_error_with_its_place(pack, tmp_path):
    cut, damaged = pack(TEXT)[:-20], bytearray(pack(TEXT))
    damaged[len(damaged) // 2] ^= 0xFF
    for data, said in ((cut, f"byte {len(cut)}"), (damaged, r"damaged|truncated")):
        path = write(tmp_path / "a", bytes(data))
        with refused(InputError, said, path=str(path)):
            owned(FileRange(str(path), 0, len(data)))


@pytest.mark.parametrize(("data", "message"), [(b"", "empty"), (b"PK\x03\x04", "zip"), (b"7z\xbc\xaf\x27\x1c", "7z")])
def test_files_that_cannot_be_read_say_why(data, message, tmp_path):
    with pytest.raises(InputError, match=message):
        list(compressed.CompressedFile(write(tmp_path / "a", data)).read())


# A limit chooses the same documents however the corpus's path is spelled.


CHOSEN = ["0", "1", "5"]  # a function of the names below "many": users rely on it


def chosen(place):
    """Return the first words of the documents that a limit leaves."""
    found, _ = read(CorpusConfig(name="c", reader="text", path=place, limit="3000"), 400)
    return sorted(document.text.split()[0] for document in found)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "many").mkdir()
    for number in range(12):
        (tmp_path / "many" / f"{number}.txt").write_text(f"{number} " + "word " * 200)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_spelling_of_a_path_changes_no_document(folder):
    assert chosen("many") == CHOSEN
    here = "./many many/ .//many/. many/*.txt ./many/*.txt .//many//*.txt"
    for place in (*here.split(), *(f"{folder}/{name}" for name in ("many", "/many/", "/many/*.txt", "./many"))):
        assert chosen(place) == CHOSEN, place


def test_a_name_need_not_be_utf_8(folder):
    plain = folder / "many" / "5.txt"
    plain.rename(os.fsdecode(os.fsencode(folder) + b"/many/\xff.txt"))
    assert len(chosen("many")) == 3


def names(reader, place, limit, split_bytes=400):
    """Return the ids of the documents that a limit leaves."""
    return [document.id for document in read(config(reader, place, limit=limit), split_bytes)[0]]


@pytest.mark.parametrize("reader", ["text", "books"])
def test_an_archive_next_to_a_small_file_is_read_in_part(reader, tmp_path):
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
    assert (found[-len(alone) :], len(names(reader, tmp_path, "1GB"))) == (alone, 54)


PAGE = "<page><title>A</title><ns>0</ns><id>7</id><revision><text>Words.</text></revision></page>"
OTHER = {
    "wikipedia": ("dump.xml", f"<mediawiki>{PAGE}</mediawiki>", "{}-index.txt.bz2"),
    "wikiextractor": ("wiki_00", '<doc id="7" title="A">\nA\n\nWords.\n</doc>\n', "notes{}"),
}


@pytest.mark.parametrize("reader", OTHER)
def test_files_of_another_kind_do_not_count(reader, tmp_path):
    name, content, other = OTHER[reader]
    (tmp_path / name).write_text(content)
    for number in range(9):
        (tmp_path / other.format(number)).write_bytes(bz2.compress(b"1:2:T"))
    assert names(reader, tmp_path, "1") == ["c:7"]


# Lines of text files: what is empty, endless or broken is said with its place.


def test_an_empty_compressed_file_is_broken(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "b.jsonl.gz").touch()
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b""))  # whole, of no lines
    with refused(InputError, path=str(tmp_path / "b.jsonl.gz")):
        read(config("jsonl", tmp_path))
    found, tally = read(config("jsonl", tmp_path, on_error="skip"))
    assert ([d.text for d in found], tally) == (["a"], {"broken": 1})
    assert tally.broken[0].startswith(str(tmp_path / "b.jsonl.gz"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_file_without_the_mark_that_its_encoding_needs_is_broken(encoding, tmp_path):
    (tmp_path / "a.txt").write_text("One.", encoding)
    (tmp_path / "b.txt").write_text("漢字文書", f"{encoding}-le")  # in any order
    (tmp_path / "c.txt").write_text("Three, szedł.", f"{encoding}-be")
    with refused(InputError, path=str(tmp_path / "b.txt")):
        read(config("lines", tmp_path, encoding=encoding))
    found, tally = read(config("lines", tmp_path, encoding=encoding, on_error="skip"))
    assert ([d.text for d in found], tally) == (["One.", "Three, szedł."], {"broken": 1})
    (tmp_path / "c.txt").unlink()
    found, _ = read(config("lines", tmp_path, encoding=f"{encoding}-le"))
    assert [d.text for d in found] == ["One.", "漢字文書"]


def test_empty_files_are_noted_and_change_no_split(tmp_path):
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
def test_a_block_without_end_is_refused(reader, options, cure, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "DOCUMENT", 100 + 9 * budget.KEPT)
    path = tmp_path / "a.txt"
    path.write_text("Short.\n\n" + "é 12345678\n" * 9)  # 99 bytes without line ends
    found, _ = read(config(reader, path, options=options))
    assert len(found) == 2
    path.write_text("Short.\n\n" + "é 12345678\n" * 10)
    with refused(InputError, cure, path=str(path), line=3) as caught:
        read(config(reader, path, options=options))
    assert caught.value.key in ("corpus.reader", "corpus.options.document")


def test_lines_are_counted_by_the_line_ends_of_the_file(tmp_path):
    for end in ("\n", "\r\n", "\r"):
        path = tmp_path / "a.jsonl"
        path.write_bytes("".join(f'{{"text": "{n}"}}{end}' for n in range(50)).encode() + b"no")
        for split_bytes in (1 << 20, 100):
            with refused(InputError, line=51):
                read(config("jsonl", path), split_bytes)


def test_a_torn_letter_does_not_change_the_encoding_of_a_file(tmp_path):
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
