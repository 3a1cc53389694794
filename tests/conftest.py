"""Fixtures that every test may use."""

import datetime
import functools
import importlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import settings

from pipeline.console import terminal

ROOT = Path(__file__).resolve().parent.parent
SUITES = Path(__file__).with_name("suites.txt")  # the last run of each target of the Makefile that tests
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STORES = {"s3": "s3_server", "gs": "gs_server", "abfs": "azure_server"}
# A busy machine is slow, not wrong; `make test` draws fewer examples than `make test-all`.
settings.register_profile("full", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full"))
# Before anything loads PyTorch: of networks as small as the tests', a second thread only waits.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Commands inherit what is ignored, by `nohup` or in a background job, but no handler: they start as usual.
for number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(number) == signal.SIG_IGN or "PYTEST_XDIST_WORKER" in os.environ:  # it ends with its controller
        signal.signal(number, lambda *_: None)


@pytest.fixture(autouse=True)
def denormals():
    """What trains makes this thread flush denormal numbers, and hypothesis refuses to draw then.

    A command that executors start prints records too, and so would those of later tests.
    """
    yield
    os.environ.pop(terminal.RECORDS, None)
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)


@pytest.fixture(scope="session")
def root():
    """The top of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data():
    """Real dumps, books and GLUE files, for development: not part of the project."""
    folder = Path(os.environ.get("SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"real corpora are not here: {folder}; set SHARED_DATA")
    return folder


def store_module(kind):
    """The module of a store's server."""
    return importlib.import_module(f"tests.support.servers.{STORES[kind]}")


@pytest.fixture(
    scope="session", params=["s3", *(pytest.param(kind, marks=pytest.mark.store) for kind in ("gs", "abfs"))]
)
def store_kind(request):
    """The scheme of the store that a test works in."""
    if request.param != "s3":
        store_module(request.param).need()
    return str(request.param)


@pytest.fixture(scope="session")
def store_server(store_kind, tmp_path_factory):
    """A server of this machine."""
    with store_module(store_kind).server(tmp_path_factory.mktemp("store")) as place:
        yield place


@pytest.fixture
def store(store_kind, store_server):
    """The server behind a proxy, to which the environment points."""
    from tests.support.servers import store_proxy

    environment = store_module(store_kind).environment
    with store_proxy.proxy(*store_server) as state, environment(state.url):
        yield state


@pytest.fixture
def bucket(store_kind, store_server, store):
    """The address of an empty bucket."""
    host, port = store_server
    name = f"b{secrets.token_hex(4)}"
    store_module(store_kind).make_bucket(f"http://{host}:{port}", name)
    return f"{store_kind}://{name}"


def pytest_terminal_summary(terminalreporter, config):
    """Write what a whole suite counted, of which commit and when, into the committed list of suites."""
    suite = os.environ.get("SUITE")
    if not suite or hasattr(config, "workerinput"):
        return
    counts = [(what, len(terminalreporter.stats.get(what, []))) for what in ("passed", "skipped", "failed", "error")]
    git = functools.partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=True)
    changed = git(["git", "status", "--porcelain", "--", ".", f":!{SUITES.relative_to(ROOT)}"]).stdout
    commit = git(["git", "rev-parse", "--short=7", "HEAD"]).stdout.strip() + ("+" if changed else "")
    minutes = (time.time() - terminalreporter._session_start.time) / 60
    listed = ", ".join(f"{count} {what}" for what, count in counts if count)
    rows = dict(line.split(" ", 1) for line in SUITES.read_text().splitlines()) if SUITES.exists() else {}
    rows[suite] = f"{commit} {datetime.date.today()} {minutes:.0f} min: {listed}"
    SUITES.write_text("".join(f"{name} {row}\n" for name, row in sorted(rows.items())))


def pytest_runtest_setup(item):
    """Start no test after the moment TEST_UNTIL, in seconds since 1970; those left out are counted."""
    if time.time() > float(os.environ.get("TEST_UNTIL", "inf")):
        pytest.skip("no time left; make test-all runs all")


def pytest_addoption(parser):
    """Let a test write its golden file again."""
    parser.addoption("--golden", action="store_true", help="write golden files again")


@pytest.fixture
def drawn(tmp_path):
    """What a browser makes of an address, as HTML; it draws without a screen."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)}")
    options = (browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom")

    def draw(address, *more):
        words = [*options, *more, address]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout

    return draw
