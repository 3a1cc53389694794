"""A name stands for whole content, however many processes write it, and wherever one ends."""

import multiprocessing
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pipeline.storage.atomic import atomic_folder, atomic_path, remove_leftovers, write_text

CONTENTS = [str(number) * 20_000 for number in range(4)]


def write_often(folder: Path, content: str) -> None:
    """Write a file and a folder of one content, many times."""
    for _ in range(60):
        write_text(folder / "file", content)
        with atomic_folder(folder / "made") as made:
            made.mkdir()
            (made / "a").write_text(content)


def test_writers_at_once_leave_the_content_of_one(tmp_path: Path) -> None:
    write_often(tmp_path, CONTENTS[0])
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=write_often, args=(tmp_path, each)) for each in CONTENTS]
    for worker in workers:
        worker.start()
    try:
        while any(worker.is_alive() for worker in workers):
            assert (tmp_path / "file").read_text() in CONTENTS
    finally:
        for worker in workers:
            worker.join()
    assert [worker.exitcode for worker in workers] == [0] * len(workers)
    assert (tmp_path / "made" / "a").read_text() in CONTENTS
    assert {path.name for path in tmp_path.iterdir()} == {"file", "made"}


def interrupt(writer: AbstractContextManager[Path]) -> None:
    """Begin to write, and be interrupted."""
    with writer as path:
        path.mkdir() if path.name.startswith(".b") else path.write_text("half")
        raise KeyboardInterrupt


def test_a_body_that_raises_leaves_the_old_content(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")
    with atomic_folder(tmp_path / "b") as folder:
        folder.mkdir()
        (folder / "c").write_text("old")
    for enter in (lambda: atomic_path(tmp_path / "a"), lambda: atomic_folder(tmp_path / "b")):
        with pytest.raises(KeyboardInterrupt):
            interrupt(enter())
    assert (tmp_path / "a").read_text() == (tmp_path / "b" / "c").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_leftovers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".a.0123abcd.tmp", "a.tmp", ".hidden", "b"):
        (tmp_path / name).write_text("")
    (tmp_path / ".m.0123abcd.tmp").mkdir()
    (tmp_path / ".m.0123abcd.tmp" / "x").write_text("")
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.tmp", ".hidden", "b"}
