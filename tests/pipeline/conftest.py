"""An object store for the tests of what lives in one."""

import secrets
from collections.abc import Iterator

import pytest

from tests.pipeline import s3_server
from tests.pipeline.store_proxy import Proxy, proxy


@pytest.fixture(scope="session")
def store_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A real S3 server of this machine."""
    with s3_server.server(tmp_path_factory.mktemp("store")) as place:
        yield place


@pytest.fixture
def store(store_server: tuple[str, int]) -> Iterator[Proxy]:
    """The server behind a proxy, to which the environment points."""
    with proxy(*store_server) as state, s3_server.environment(state.url):
        yield state


@pytest.fixture
def bucket(store_server: tuple[str, int], store: Proxy) -> str:
    """The address of an empty bucket."""
    host, port = store_server
    name = f"b{secrets.token_hex(4)}"
    s3_server.make_bucket(f"http://{host}:{port}", name)
    return f"s3://{name}"
