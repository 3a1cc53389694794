"""Objects of a store, whichever it is."""

from pipeline.common import parallel
from pipeline.storage.stores.client import ANY
from pipeline.storage.stores.objects import CLIENTS, client, fetch

__all__ = ["CLIENTS", "client", "fetch"]


def head(address):
    """Return what the store says of an object; None if it is missing."""
    return client(address).head(address)


def below(address):
    """List all objects below a folder, or whose keys begin as a prefix ending in `*` does."""
    return client(address).below(address)


def read(address):
    """Return the bytes of a small object and its ETag; None if it is missing."""
    return client(address).read(address)


def age(address):
    """Return for how many seconds an object has not changed, by the clock of the store."""
    return client(address).age(address)


def put(address, data, over=ANY):
    """Write a small object over a version; return its ETag, or None where there is another version."""
    return client(address).put(address, data, over)


def put_file(address, path, checksum, over=ANY):
    """Write a file of the sha256 `checksum` (hex) as an object, as `put` does."""
    return client(address).put_file(address, path, checksum, over)


def delete(addresses):
    """Remove objects, those of them that are there."""
    parallel.each(lambda address: client(address).delete(address), addresses)
