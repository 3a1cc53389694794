"""Changes of the code are small, run, and leave alone what only people read."""

from tests import mutants as tool
from tests.mutants import judges, mutants


def test_a_kill_is_forgotten_when_its_test_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    path = tmp_path / "test_cut.py"
    path.write_text("def test_cut(): assert cut([9, 8]) == [8]")
    before = judges("test_cut.py::test_cut[1]", "near tests")
    assert before == judges("test_cut.py::test_cut[1]", "other near tests")
    path.write_text("def test_cut(): cut([9, 8])")
    weaker = judges("test_cut.py::test_cut[1]", "near tests")
    path.unlink()
    assert len({before, weaker, judges("test_cut.py::test_cut[1]", "near tests")}) == 3
    assert judges("exit -11", "a") != judges("", "b")


def test_all_rooms_of_the_product_are_drawn_from(root):
    files = {path.relative_to(root).as_posix() for top in ("pipeline", "model") for path in (root / top).rglob("*.py")}
    drawn = {mutant.path for room in tool.ROOMS for mutant in tool.drawn(room, 10**6, 0)}
    assert drawn <= files
    assert {path for path in files - drawn if list(mutants(path, (root / path).read_bytes()))} == set()
