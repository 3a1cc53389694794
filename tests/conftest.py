"""Fixtures that every test may use."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
# A busy machine is slow, not wrong; `make test` draws fewer examples than `make test-all`.
settings.register_profile("full", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full"))
# Before anything loads PyTorch: of networks as small as the tests', a second thread only waits.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def denormals() -> Iterator[None]:
    """What trains makes this thread flush denormal numbers, and hypothesis refuses to draw then."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real dumps, books and GLUE files, for development: not part of the project."""
    folder = Path(os.environ.get("SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"real corpora are not here: {folder}; set SHARED_DATA")
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a test write its golden file again."""
    parser.addoption("--golden", action="store_true", help="write golden files again")
