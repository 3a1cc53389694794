"""Fixtures that every test may use."""

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.pipeline.store_proxy import Proxy

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


@pytest.fixture(scope="session", params=["s3", pytest.param("gs", marks=pytest.mark.store)])
def store_kind(request: pytest.FixtureRequest) -> str:
    """The scheme of the store that a test works in."""
    if request.param == "gs":
        from tests.pipeline import gs_server

        gs_server.need()
    return str(request.param)


@pytest.fixture(scope="session")
def store_server(
    store_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, int]]:
    """A server of this machine."""
    from tests.pipeline import gs_server, s3_server

    serve = gs_server.server if store_kind == "gs" else s3_server.server
    with serve(tmp_path_factory.mktemp("store")) as place:
        yield place


@pytest.fixture
def store(store_kind: str, store_server: tuple[str, int]) -> "Iterator[Proxy]":
    """The server behind a proxy, to which the environment points."""
    from tests.pipeline import gs_server, s3_server, store_proxy

    environment = gs_server.environment if store_kind == "gs" else s3_server.environment
    with store_proxy.proxy(*store_server) as state, environment(state.url):
        yield state


@pytest.fixture
def bucket(store_kind: str, store_server: tuple[str, int], store: "Proxy") -> str:
    """The address of an empty bucket."""
    from tests.pipeline import gs_server, s3_server

    host, port = store_server
    name = f"b{secrets.token_hex(4)}"
    make = gs_server.make_bucket if store_kind == "gs" else s3_server.make_bucket
    make(f"http://{host}:{port}", name)
    return f"{store_kind}://{name}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a test write its golden file again."""
    parser.addoption("--golden", action="store_true", help="write golden files again")
