"""`make release` begins only from a clean tree without the tag, and says in one line what ended it."""

import pytest

from tests import release


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """What git says; the release itself is a command that fails."""
    said = {"status": "", "tag": ""}
    monkeypatch.setattr(release, "git", lambda *words: said[words[0]])
    monkeypatch.setattr(release, "LOG", tmp_path / "log.txt")
    monkeypatch.setattr(release, "release", lambda elsewhere: release.run("false", "a b"))
    return said


@pytest.mark.parametrize(
    ("asked", "said", "shown"),
    [("status", " M README.md", "git status"), ("tag", release.TAG, release.TAG), ("tag", "", "false 'a b'")],
)
def test_what_ends_it_is_a_line(answers, asked, said, shown, capsys):
    answers[asked] = said
    with pytest.raises(SystemExit) as ended:
        release.main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert shown in line


def test_each_command_is_shown():
    assert {"pipeline.run", "pipeline", "model.launch", "pipeline.beam.pool"} <= set(release.commands())


def test_the_changes_are_one_part_of_the_changelog():
    shown = release.changes()
    assert shown.startswith("## ")
    assert shown.count("\n## ") == 0
