"""Batches made ahead by a thread."""

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class prefetch(Generic[Item]):
    """An iterator that a thread keeps `depth` items ahead of its reader.

    numpy lets go of the interpreter in its loops, so that the thread works while the model does.
    What the source raises is raised by `next`. `close`, or the end of a `with` block, stops the
    thread. It is woken to make half of `depth` at once: each waking takes the reader's time too.
    """

    def __init__(self, source: Iterable[Item], depth: int = 2):
        self.waited = 0.0  # seconds that the reader stood waiting
        self._ready: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue()
        self._room = threading.Semaphore(depth)
        self._bundle, self._taken = max(1, depth // 2), 0
        self._closed = False
        self._thread = threading.Thread(target=self._fill, args=(source,), daemon=True)
        self._thread.start()

    def _fill(self, source: Iterable[Item]) -> None:
        try:
            items = iter(source)
            while True:
                self._room.acquire()
                if self._closed:
                    return
                self._ready.put((next(items), None))
        except BaseException as error:  # the end too; carried over to the reader
            self._ready.put((None, error))

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        began = time.perf_counter()
        item, error = self._ready.get()
        self.waited += time.perf_counter() - began
        if error is not None:
            self._ready.put((None, error))  # for who asks again
            raise error
        self._taken += 1
        if self._taken == self._bundle:
            self._room.release(self._bundle)
            self._taken = 0
        return item  # type: ignore[return-value]

    def close(self) -> None:
        """Stop the thread; what it had ready is dropped."""
        self._closed = True
        self._room.release()
        self._thread.join()

    def __enter__(self) -> "prefetch[Item]":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
