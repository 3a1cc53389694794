import bz2
import gzip
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import InputError
from pipeline.readers import FileRange
from pipeline.readers.io import compressed
from tests.support.refusals import refused

TEXT = "".join(f"line {number}\n" for number in range(2000)).encode()


def owned(split: FileRange) -> bytes:
    return b"".join(data for data, is_owned in compressed.CompressedFile(split.path).read(split) if is_owned)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@given(streams=st.integers(1, 9), cuts=st.lists(st.integers(0, 10_000), max_size=6))
def test_any_ranges_of_a_multistream_file_own_every_byte_once(
    tmp_path_factory: pytest.TempPathFactory, streams: int, cuts: list[int]
) -> None:
    step = -(-len(TEXT) // streams)
    data = b"".join(bz2.compress(TEXT[at : at + step]) for at in range(0, len(TEXT), step))
    path = write(tmp_path_factory.mktemp("dump") / "a.bz2", data)
    bounds = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    parts = [FileRange(str(path), a, b) for a, b in itertools.pairwise(bounds)]
    assert b"".join(map(owned, parts)) == TEXT


def test_only_files_that_can_be_read_in_parts_are_cut(tmp_path: Path) -> None:
    many = write(tmp_path / "many", bz2.compress(TEXT[:9000]) + bz2.compress(TEXT[9000:]))
    one = write(tmp_path / "one", bz2.compress(TEXT))
    zipped = write(tmp_path / "zipped", gzip.compress(TEXT))
    plain = write(tmp_path / "plain", TEXT)
    counts = [len(compressed.CompressedFile(path).ranges(1000)) for path in (many, one, zipped, plain)]
    assert counts[0] > 1
    assert (counts[1:3], counts[3]) == ([1, 1], round(len(TEXT) / 1000))
    assert len(compressed.CompressedFile(plain).ranges(1000, seekable_text=False)) == 1


def test_what_follows_a_part_is_read_on_and_marked(tmp_path: Path) -> None:
    path = write(tmp_path / "a", bz2.compress(b"one ") + bz2.compress(b"two"))
    assert list(compressed.CompressedFile(path).read(FileRange(str(path), 0, 1))) == [(b"one ", True), (b"two", False)]


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress])
def test_members_in_a_row_are_one_text_and_padding_is_none(pack: object, tmp_path: Path) -> None:
    data = pack(TEXT[:9000]) + pack(TEXT[9000:]) + b"\0" * 512  # type: ignore[operator]
    path = write(tmp_path / "a", data)
    assert owned(FileRange(str(path), 0, len(data))) == TEXT


@pytest.mark.parametrize("padding", [1, compressed.CHUNK, 2 * compressed.CHUNK + 7])
def test_padding_of_any_length_hides_nothing_and_belongs_to_no_part(padding: int, tmp_path: Path) -> None:
    first, second = bz2.compress(TEXT[:9000]), bz2.compress(TEXT[9000:])
    data = first + b"\0" * padding + second
    path = write(tmp_path / "a", data)
    assert owned(FileRange(str(path), 0, len(data))) == TEXT
    for cut in (len(first), len(first) + 1, len(first) + padding):
        parts = [FileRange(str(path), 0, cut), FileRange(str(path), cut, len(data))]
        assert list(map(owned, parts)) == [TEXT[:9000], TEXT[9000:]]


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress])
def test_a_file_cut_off_is_an_error_with_its_place(pack: object, tmp_path: Path) -> None:
    data = pack(TEXT)[:-20]  # type: ignore[operator]
    path = write(tmp_path / "a", data)
    with refused(InputError, f"byte {len(data)}", path=str(path)):
        owned(FileRange(str(path), 0, len(data)))


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress])
def test_damage_is_an_error_with_its_place(pack: object, tmp_path: Path) -> None:
    data = bytearray(pack(TEXT))  # type: ignore[operator]
    data[len(data) // 2] ^= 0xFF
    path = write(tmp_path / "a", bytes(data))
    with refused(InputError, r"damaged|truncated", path=str(path)):
        owned(FileRange(str(path), 0, len(data)))


@pytest.mark.parametrize(("data", "message"), [(b"", "empty"), (b"PK\x03\x04", "zip"), (b"7z\xbc\xaf\x27\x1c", "7z")])
def test_files_that_cannot_be_read_say_why(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        list(compressed.CompressedFile(write(tmp_path / "a", data)).read())


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with refused(InputError, path=str(tmp_path / "none.bz2")):
        list(compressed.CompressedFile(tmp_path / "none.bz2").read())
