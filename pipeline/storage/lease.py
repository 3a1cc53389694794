"""A lock in an object store: an object that only one can write, and that has to be renewed.

Its age is read from the store's own clock, so that those of the machines need not agree. A holder
that was killed leaves it behind; it is taken over when it was not renewed for `LEASE` seconds, at
once if the process that held it ran on this machine and is gone.
"""

import contextlib
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import InputError, Restart, StoreError
from pipeline.storage import strict_json
from pipeline.storage.stores import objects

LEASE = 60.0  # seconds
ASK = 2.0  # seconds between looks at a lock that somebody else holds


class Lease:
    """A lock that this process holds, renewed by a thread."""

    def __init__(self, address: str, key: str):
        self.address, self.key, self._store = address, key, objects.client(address)
        self._token = secrets.token_hex(8)
        self._etag: str | None = None
        self._lost, self._renewed = False, -LEASE  # when it was asked last, by the monotonic clock
        self._one, self._close = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def take(self, wait: bool) -> None:
        """Get the lock; with `wait`, when its holder lets go.

        A lock counts as held once it is seen to be renewed: a process that was killed a moment ago,
        on a machine that is lost, must not stop the one that takes its place.

        Raises:
            InputError: another process holds it.
            StoreError, Restart: the store refuses, or does not answer.
        """
        first: str | None = None  # the lock as it was when it was seen first
        while not self._try():
            lock, age = self._store.read(self.address), self._store.age(self.address)
            if lock is None or age is None:
                continue
            holder, etag = strict_json.object_in(lock[0]), lock[1]
            if holder.get("token") == self._token:  # the answer to our own request was lost
                self._etag = etag
                break
            if age > LEASE or _is_gone(holder):
                self._etag = self._store.put(self.address, self._text(), etag)
                if self._etag is not None:
                    break
            elif first not in (None, etag) and not wait:
                raise InputError(
                    f"{_described(holder)} works there, and holds the lock for at least {LEASE - age:.0f} s more; "
                    "wait, or choose another folder",
                    self.key,
                    self.address.rpartition("/")[0],
                )
            elif first is None:
                print(f"waiting: {_described(holder)} may work there", file=sys.stderr, flush=True)
            first = first or etag
            time.sleep(min(ASK, LEASE / 4))
        self._thread.start()

    def hold(self) -> None:
        """Renew the lock where it was not for a while: no other process writes below it for `LEASE` / 2 seconds.

        Raises:
            Restart: another process has taken it over.
            StoreError: the store refuses.
        """
        if time.monotonic() - self._renewed > LEASE / 2:
            self._renew()
        if self._lost:
            raise Restart(f"{self.address}: was not renewed in time, and another process has taken it over")

    def release(self) -> None:
        """Let go of it."""
        self._close.set()
        self._thread.join()
        with contextlib.suppress(StoreError, Restart):
            self._renew()  # another process may have taken it over meanwhile
            if not self._lost:
                self._store.delete(self.address)

    def _try(self) -> bool:
        self._etag = self._store.put(self.address, self._text(), None)
        if self._etag is None:
            return False
        again = self._store.put(self.address, self._text(), None)
        if again is not None:
            self._etag = again
            print(
                f"warning: {self.address}: this store ignores conditions (If-None-Match), so "
                "nothing keeps two runs from working in one folder",
                file=sys.stderr,
                flush=True,
            )
        return True

    def _keep(self) -> None:
        while not self._close.wait(LEASE / 4) and not self._lost:
            with contextlib.suppress(StoreError, Restart):  # if it lasts, the next `hold` says it
                self._renew()

    def _renew(self) -> None:
        with self._one:
            if self._lost:  # the lock is another's now: to put ours would end its work
                return
            now = time.monotonic()
            etag = self._store.put(self.address, self._text(), self._etag)
            if etag is None and (lock := self._store.read(self.address)) is not None:
                # The answer to an earlier renewal of ours may have been lost.
                etag = lock[1] if strict_json.object_in(lock[0]).get("token") == self._token else None
            self._lost = etag is None
            self._renewed = now
            self._etag = etag

    def _text(self) -> bytes:
        return json.dumps(
            {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "token": self._token,
                "machine": _machine(),
                "user": os.environ.get("USER", ""),
                "renewed": time.time(),
            }
        ).encode()


@contextlib.contextmanager
def hold_lock(address: str, key: str, wait: bool = False) -> Iterator[Lease]:
    """Hold the lock at an address; `key` is the option that an error names.

    Raises:
        InputError: another process holds it.
    """
    lease = Lease(address, key)
    lease.take(wait)
    try:
        yield lease
    finally:
        lease.release()


def _described(holder: strict_json.Json) -> str:
    return f"process {holder.get('pid', '?')} on {holder.get('host', 'an unknown host')}"


def _is_gone(holder: strict_json.Json) -> bool:
    """Return whether the holder was a process of this machine that does not run any more."""
    pid = holder.get("pid")
    if holder.get("machine") != _machine() or not _machine() or not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


def _machine() -> str:
    """Return what tells this start of this machine, and its process numbers, from all others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return ""
