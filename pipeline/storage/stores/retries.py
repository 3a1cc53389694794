"""Waiting for a store: a request is repeated, with longer pauses, until it is answered."""

import io
import os
import re
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from pipeline.errors import ConfigError, Restart, StoreError, first_line

PAUSE, LONGEST_PAUSE = 0.5, 20.0  # seconds between tries, doubled from the one to the other
SILENT = 5.0  # seconds of tries before a line says so
UNKNOWN = 30.0  # seconds of tries while the name of the host is unknown
SLOWEST = 10_000  # bytes per second; a connection that is slower over a window is given up
WINDOW = 60.0  # seconds
UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED|SSL validation failed .*\[Errno|CA certificate bundle")

Result = TypeVar("Result")


class Again(Exception):
    """A failure that may pass; `answered` if it was the server's own answer, which may ask for a pause."""

    def __init__(self, reason: str, answered: bool = True, pause: float = 0.0):
        super().__init__(reason)
        self.answered, self.pause = answered, pause


class Notice:
    """A line that says that a store is waited for, once."""

    def __init__(self, address: str):
        self._address, self._began, self._said = address, time.monotonic(), False

    def failed(self, error: Exception) -> None:
        """Count a failed try."""
        if time.monotonic() - self._began + getattr(error, "pause", 0.0) > SILENT and not self._said:
            self._said = True
            reason = first_line(error)
            print(f"waiting for the store of {self._address} ({reason})", file=sys.stderr, flush=True)


class Pace:
    """How fast the bytes of an answer come."""

    def __init__(self) -> None:
        self._began, self._bytes = time.monotonic(), 0

    def add(self, count: int) -> None:
        """Count bytes that have come.

        Raises:
            ConnectionError: they come too slowly; another connection may be faster.
        """
        self._bytes += count
        spent = time.monotonic() - self._began
        if spent > WINDOW and self._bytes / spent < SLOWEST:
            raise ConnectionError(f"slower than {SLOWEST:,} bytes per second")


class Body(io.BytesIO):
    """The bytes of an answer, which must not come too slowly."""

    def __init__(self) -> None:
        super().__init__()
        self._pace = Pace()

    def write(self, data: Any) -> int:
        """Append bytes."""
        self._pace.add(len(data))
        return super().write(data)


def until_answered(
    address: str, endpoint: str, what_to_check: str, request: Callable[[], Result], outage: list[float] | None = None
) -> Result:
    """Repeat a request that raises `Again`; several that have one `outage`, the time of its start, wait once together.

    Raises:
        StoreError: the name of the host is unknown, or its certificate; `what_to_check` completes the sentence.
        Restart: the store does not answer.
    """
    began, notice, pause = outage[0] if outage else time.monotonic(), Notice(address), PAUSE
    outage = [] if outage is None else outage
    while True:
        try:
            result = request()
            outage.clear()
            return result
        except Again as error:
            outage[:] = [began]
            notice.failed(error)
            reason, retry_after, silent = str(error), error.pause, not error.answered
        if UNTRUSTED.search(reason):
            raise StoreError(
                f"the store's certificate is not trusted ({reason}); put its authority's file into AWS_CA_BUNDLE, "
                "REQUESTS_CA_BUNDLE (gs, abfs) or SSL_CERT_FILE (hf)",
                path=address,
            )
        spent = time.monotonic() - began
        if silent and spent > min(UNKNOWN, longest_wait()) and is_unknown(endpoint):
            raise StoreError(
                f"the store cannot be reached ({reason}); check the network, {what_to_check}", path=address
            )
        if spent + retry_after > longest_wait():
            raise Restart(
                f"{address}: the store did not answer for {spent:.0f} s ({reason}); check the network, {what_to_check}"
            )
        time.sleep(min(max(pause, retry_after), max(0.1, longest_wait() - spent)))
        pause = min(2 * pause, LONGEST_PAUSE)


def is_unknown(endpoint: str) -> bool:
    """Return whether the name of a host is unknown; not if the name server is away, or a proxy asks it."""
    place = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    try:
        socket.getaddrinfo(place.hostname, None)
    except socket.gaierror as error:
        return error.errno in (socket.EAI_NONAME, socket.EAI_NODATA) and not getproxies()
    return False


def longest_wait() -> float:
    """Return for how many seconds a store that does not answer is waited for.

    Raises:
        ConfigError: the environment's number is none.
    """
    name = "BERT_STORE_TIMEOUT"
    value = os.environ.get(name, "300")
    if not re.fullmatch(r"\d+(\.\d*)?", value):
        raise ConfigError("must be a number of seconds", name, value)
    return float(value)
