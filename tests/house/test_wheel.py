"""A wheel has all that the commands need, so that they run from any folder; a source archive makes it."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import forked

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(root, tmp_path_factory):
    """A copy of what is built."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(root / name, source / name)
    for name in ("conf", "model", "pipeline"):
        shutil.copytree(root / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    return source


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    """The wheel of this tree, built without a network."""
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-build-isolation", "--no-index", "--wheel-dir", str(out), str(source))
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """A folder with the wheel installed; other packages are those of the tests."""
    folder = tmp_path_factory.mktemp("site")
    pip("install", "--no-index", "--target", str(folder), str(wheel))
    return folder


def pip(*words):
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, words[0], "--no-deps", *words[1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def run(site, cwd, *words):
    done = forked.fresh(*words, cwd=cwd, env=os.environ | {"PYTHONPATH": str(site)})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_has_every_file_of_the_tree_that_is_read(root, wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("conf", "model", "pipeline"):
        for path in (root / folder).rglob("*"):
            if path.is_dir() or "__pycache__" in path.parts:
                continue
            name = path.relative_to(root).as_posix()
            assert (f"pipeline/{name}" if folder == "conf" else name) in names
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"model", "pipeline"}


def test_commands_run_from_any_folder(site, tmp_path):
    where = run(site, tmp_path, "-c", "import pipeline, model; print(pipeline.__file__)")
    assert Path(where.strip()).is_relative_to(site)
    words = ["-m", "pipeline.vocab", "+corpus=books", f"workdir={tmp_path}/work", "size=300"]
    assert "size=300" in run(site, tmp_path, *words, "--help")
    (tmp_path / "a.txt").write_text("One sentence here. Another one there.\n" * 50)
    made = run(site, tmp_path, *words, f"corpus.path={tmp_path}/a.txt")
    assert made.startswith("vocab: ")
    plan = ["-m", "pipeline.run", "+corpus=sample", f"workdir={tmp_path}/work", "dry_run=true"]
    assert "prepare" in run(site, tmp_path, *plan)
    script = run(site, tmp_path, "-c", "import model.train; print(model.train.__file__)").strip()
    for command in (["-m", "model.train"], [script]):
        assert "steps=7" in run(site, tmp_path, *command, "steps=7", "--help")
