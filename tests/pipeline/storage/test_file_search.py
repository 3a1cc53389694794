"""Every file of a folder is found, through links too, or the search says what it cannot see."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import InputError
from pipeline.filtering import filters
from pipeline.storage import places
from tests.support.refusals import refused

# Root may read everything, unless these rights are taken away.
UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]


def unprivileged(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python as somebody whom permissions bind."""
    prefix = [] if os.geteuid() else UNPRIVILEGED
    if prefix and shutil.which(prefix[0]) is None:
        pytest.skip("needs setpriv, as root is not bound by permissions")
    return subprocess.run([*prefix, sys.executable, *words], cwd=root, capture_output=True, text=True, check=False)


def text(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("Words.\n")
    return path


def names(found: list[places.File], top: Path) -> list[str]:
    return [str(file).removeprefix(f"{top}/") for file in found]


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A folder with a link to another one, in which links lead in circles."""
    text(tmp_path / "data" / "deep" / "b.txt")
    text(tmp_path / "data" / "c.txt")
    top = tmp_path / "top"
    text(top / "a.txt")
    (top / "sub").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "up").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "deep" / "home").symlink_to(top)
    return top


def test_linked_folders_are_searched_once(linked: Path) -> None:
    wanted = ["a.txt", "sub/c.txt", "sub/deep/b.txt"]
    assert names(places.below(linked), linked) == wanted
    assert names(places.matching(f"{linked}/**/*.txt"), linked) == wanted
    assert names(places.matching(f"{linked}/sub/*.txt"), linked) == ["sub/c.txt"]
    assert names(places.matching(f"{linked}/*/deep/[a-c].txt"), linked) == ["sub/deep/b.txt"]
    assert names(list(filters.evaluation_files([str(linked)])), linked) == wanted


def test_a_folder_keeps_its_own_name_where_links_lead_to_it_too(tmp_path: Path) -> None:
    text(tmp_path / "z" / "a.txt")
    (tmp_path / "a").symlink_to(tmp_path / "z")
    assert names(places.below(tmp_path), tmp_path) == ["z/a.txt"]
    assert names(places.matching(f"{tmp_path}/a/**"), tmp_path) == ["a/a.txt"]


def test_hidden_files_are_left_out_and_asked_for(tmp_path: Path) -> None:
    for name in (".a.txt", ".cache/b.txt", "~$c.txt", "d/.e.txt"):
        text(tmp_path / name)
    (tmp_path / ".broken").symlink_to("nowhere")
    assert places.below(tmp_path) == []
    assert places.matching(f"{tmp_path}/**/*.txt") == [tmp_path / "~$c.txt"]
    assert names(places.matching(f"{tmp_path}/.cache/*.txt"), tmp_path) == [".cache/b.txt"]
    assert names(places.matching(f"{tmp_path}/.*.txt"), tmp_path) == [".a.txt"]


def test_a_name_may_begin_with_any_other_sign(tmp_path: Path) -> None:
    wanted = ["#b.txt", "_c.txt", "d/~e.txt", "~/f.txt", "~a.txt"]
    for name in wanted:
        text(tmp_path / name)
    assert names(places.below(tmp_path), tmp_path) == wanted


def test_patterns_mean_what_they_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "b/c.txt", "b/d/e.txt", "x[1].txt", "x1.txt"):
        text(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert [str(path) for path in places.matching("**")] == ["a.txt", "b/c.txt", "b/d/e.txt", "x1.txt", "x[1].txt"]
    assert [str(path) for path in places.matching("b/**/*.txt")] == ["b/c.txt", "b/d/e.txt"]
    assert [str(path) for path in places.matching("./?.txt")] == ["a.txt"]
    assert [str(path) for path in places.matching("x[1].txt")] == ["x[1].txt"]
    assert places.matching("a.txt/*") == places.matching("nowhere/*") == []


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    text(tmp_path / "a.txt")
    broken = tmp_path / "b.txt"
    broken.symlink_to("nowhere.txt")
    for look in (lambda: places.below(tmp_path), lambda: places.matching(f"{tmp_path}/*.txt")):
        with refused(InputError, r"nowhere\.txt", path=str(broken)):
            look()
    assert places.matching(f"{tmp_path}/a*") == [tmp_path / "a.txt"]


SEARCH = """
import sys
from pipeline.storage import places
from pipeline.errors import InputError
for place in sys.argv[1:]:
    try:
        found = places.matching(place) if "*" in place else places.below(places.at(place))
        print(len(found))
    except InputError as error:
        print(error.path)
"""


def test_a_folder_without_permission_is_named(root: Path, tmp_path: Path) -> None:
    text(tmp_path / "mix" / "a.txt")
    closed = text(tmp_path / "mix" / "closed" / "b.txt").parent
    text(tmp_path / "disk" / "a.txt")
    lost = text(tmp_path / "disk" / "lost+found" / "b.txt").parent  # as every disk has it
    for folder in (closed, lost):
        folder.chmod(0)
    wanted = ["mix", "mix/**/*.txt", "mix/*/*.txt", "mix/*.txt", "disk"]
    done = unprivileged(root, "-c", SEARCH, *(f"{tmp_path}/{place}" for place in wanted))
    for folder in (closed, lost):
        folder.chmod(0o755)
    assert done.stdout.split() == [str(closed)] * 3 + ["1", "1"], done.stderr


@pytest.mark.parametrize("place", ["closed", "closed/a.txt", "closed/*.txt", "."])
def test_prepare_says_in_one_line_what_it_may_not_read(root: Path, tmp_path: Path, place: str) -> None:
    text(tmp_path / "corpus" / "b.txt")
    closed = text(tmp_path / "corpus" / "closed" / "a.txt").parent
    closed.chmod(0)
    words = ["+corpus=text", f"corpus.path={tmp_path}/corpus/{place}", f"vocab={tmp_path}"]
    done = unprivileged(root, "-m", "pipeline.prepare", *words, f"out={tmp_path}/out")
    closed.chmod(0o755)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert f"{closed}: cannot be read (permission denied)" in done.stderr.lower()


@pytest.mark.slow
def test_a_file_without_permission_is_named(root: Path, tmp_path: Path) -> None:
    text(tmp_path / "corpus" / "a.txt")
    closed = text(tmp_path / "corpus" / "b.txt")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nwords\n")
    closed.chmod(0)
    words = [f"corpus.path={tmp_path}/corpus", f"vocab={tmp_path}/vocab.txt", f"out={tmp_path}/out"]
    for reader in ("text", "lines"):
        done = unprivileged(root, "-m", "pipeline.prepare", f"+corpus={reader}", *words)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert f"{closed}: cannot be read (permission denied)" in done.stderr.lower()
