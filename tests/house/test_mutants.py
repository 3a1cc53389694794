"""Changes of the code are small, run, and leave alone what only people read."""

import ast

from tests import mutants as tool
from tests.mutants import judges, mutants

SOURCE = '''"""A module of 3 rooms."""

from typing import TYPE_CHECKING

__all__ = ["LIMIT"]
LIMIT: "int | None" = 7
if TYPE_CHECKING:
    OTHER = 1


def cut(rows: list[int], é: bool = True) -> list[int]:
    """Return at most 5."""
    assert len(rows) < 9, "é"
    if not é and len(rows) >= LIMIT:
        raise ValueError(f"{len(rows) + 1} rows", 2)
    print(f"{max(rows) + 1}", 4)
    rows.append(min(rows) - 1)
    rows[0] += 1
    return rows[:LIMIT]
'''


def test_changes_are_programs_and_none_is_of_words_or_types():
    whole, lines = ast.dump(ast.parse(SOURCE)), SOURCE.splitlines()
    changed = {}
    for mutant in mutants("x.py", SOURCE.encode()):
        data = SOURCE.encode()
        text = (data[: mutant.start] + mutant.new.encode() + data[mutant.end :]).decode()
        assert ast.dump(ast.parse(text)) != whole
        changed.setdefault(lines[mutant.first - 1].strip(), set()).add(mutant.new)
    assert changed == {
        'LIMIT: "int | None" = 7': {"8", "(6)"},
        "def cut(rows: list[int], é: bool = True) -> list[int]:": {"False"},
        "if not é and len(rows) >= LIMIT:": {"(not é or len(rows) >= LIMIT)", "(é)", "(len(rows) > LIMIT)"},
        'raise ValueError(f"{len(rows) + 1} rows", 2)': {"pass"},
        "rows.append(min(rows) - 1)": {"pass", "(min(rows) + 1)", "max(rows)", "2", "(0)"},
        "rows[0] += 1": {"pass", "rows[0] -= 1", "1", "(-1)", "2", "(0)"},
        "return rows[:LIMIT]": {"return None", "1:LIMIT", ":(LIMIT) +1"},
    }


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
