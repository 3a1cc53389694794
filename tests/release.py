"""Build a release, check it in an empty environment, and print what a maintainer types: `make release`.

What is built is the last commit. The environment, gigabytes in `build/release/venv`, stays only if a
step fails.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.small import SMALL_RUN
from pipeline import __version__

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "release"
LOG, FILES, VENV = PLACE / "log.txt", PLACE / "files", PLACE / "venv"
TAG = f"v{__version__}"
ARCHIVE = ROOT / "tests" / "releases" / f"{__version__}.json"  # the last of its files
# Nothing of this tree, and of no other environment.
OWN = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
EMPTY = OWN | {"PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def refuse(problem):
    print(f"error: {problem}", file=sys.stderr)
    sys.exit(2)


@contextlib.contextmanager
def step(what):
    """Show a step, and how long it took, as a line."""
    print(f"{what} …", end=" ", flush=True)
    began = time.monotonic()
    try:
        yield
    finally:
        print(f"{time.monotonic() - began:.0f} s", flush=True)


def run(*words, cwd=ROOT, env=OWN):
    """Run a command, whose output is added to the log."""
    with LOG.open("a") as log:
        print(f"$ {shlex.join(words)}", file=log, flush=True)
        subprocess.run(words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)


def python(*words, cwd):
    """Run the Python of the empty environment."""
    run(str(VENV / "bin" / "python"), *words, cwd=cwd, env=EMPTY)


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def commands():
    """All modules that a user starts."""
    files = [path for part in ("pipeline", "model") for path in sorted((ROOT / part).glob("*.py"))]
    found = [path for path in files if '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in found]
    return [name.removesuffix(".__main__") for name in names] + ["pipeline.beam.pool"]


def check_commands(elsewhere):
    """Show the help of each command of what is installed, which is not this tree."""
    for name in ("pipeline", "model"):
        python("-c", f"import {name}; assert {name}.__file__.startswith({str(VENV)!r})", cwd=elsewhere)
    for name in commands():
        python("-m", name, "--help", cwd=elsewhere)


def build():
    """Build both files from the last commit, without what else lies in this tree; return their paths.

    A commit gives one wheel, to the byte; an sdist has the times at which its folders were made.
    """
    dated = OWN | {"SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").strip()}
    with tempfile.TemporaryDirectory() as source:
        tar = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", source], input=tar, check=True)
        run(sys.executable, "-m", "build", "--outdir", str(FILES), source, env=dated)
    (wheel,), (sdist,) = FILES.glob("*.whl"), FILES.glob("*.tar.gz")
    return str(wheel), str(sdist)


def release(elsewhere):
    """Build and check all."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    with step("build the wheel and the sdist"):
        wheel, sdist = build()
    with step("install the wheel into an empty environment"):
        run(sys.executable, "-m", "venv", str(VENV))
        python("-m", "pip", "install", "-c", str(ROOT / "constraints.txt"), wheel, cwd=elsewhere)
    with step(f"show the help of {len(commands())} commands"):
        check_commands(elsewhere)
    with step("run the demo with 50 steps"):
        python("-m", "pipeline.run", *SMALL_RUN.split(), "workdir=work", cwd=elsewhere)
        if not Path(elsewhere, "work", "report", "report.html").exists():
            refuse(f"the demo made no report; its output is in {LOG}")
    with step("install the sdist, show the help again"):
        # Without the cache, which knows a file by its path: it would give the wheel of an earlier run.
        words = ["install", "--no-cache-dir", "--no-deps", "--force-reinstall", sdist]
        python("-m", "pip", *words, cwd=elsewhere)
        check_commands(elsewhere)
    if not ARCHIVE.exists():
        with step("write into tests/releases what all later versions must read"):
            run(sys.executable, "-m", "tests.releases.archive", __version__)
    shutil.rmtree(VENV)


def changes():
    """The part of the changelog about this version; before it has its name, about what is unreleased."""
    parts = re.split(r"^(?=## )", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)
    return next(part for name in (__version__, "Unreleased") for part in parts if part.startswith(f"## {name}"))


def main():
    if git("status", "--porcelain"):
        refuse("files differ from the last commit (git status): commit them first")
    if git("tag", "--list", TAG):
        refuse(f"{TAG} is a tag already: raise __version__ in pipeline/__init__.py")
    try:
        with tempfile.TemporaryDirectory() as elsewhere:
            release(elsewhere)
    except subprocess.CalledProcessError as error:
        refuse(f"{shlex.join(error.cmd)} ended with {error.returncode}; its output is in {LOG}")
    print(f"""
All checks passed. Give the part below its name in CHANGELOG.md, "## {__version__}", then type:

git add CHANGELOG.md tests/releases && git commit -m "release: {__version__}"
git tag -a {TAG} -m {__version__}
git push origin HEAD {TAG}
python -m twine upload {FILES.relative_to(ROOT)}/*

{changes()}""")


if __name__ == "__main__":
    main()
