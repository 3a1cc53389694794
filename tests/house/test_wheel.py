"""A wheel has all that the commands need; `make release` runs them in an empty environment."""

import shutil
import subprocess
import sys
import zipfile

import pytest

pytestmark = pytest.mark.slow


def build(root, place):
    """The wheel of this tree, built without a network from a copy of what is needed."""
    for name in ("conf", "model", "pipeline"):
        shutil.copytree(root / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(root / name, place / name)
    words = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", place / "made", place]
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = (place / "made").glob("*.whl")
    return made


def test_a_wheel_has_every_file_of_the_tree_that_is_read(root, tmp_path):
    names = set(zipfile.ZipFile(build(root, tmp_path)).namelist())
    for folder in ("conf", "model", "pipeline"):
        for path in (root / folder).rglob("*"):
            if path.is_dir() or "__pycache__" in path.parts:
                continue
            name = path.relative_to(root).as_posix()
            assert (f"pipeline/{name}" if folder == "conf" else name) in names
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"model", "pipeline"}
