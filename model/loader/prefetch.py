"""Items made by a thread before they are needed."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


class prefetch(Iterator[Item]):
    """Iterator that a thread keeps `depth` items ahead of its reader.

    numpy releases the interpreter lock in its loops, so the thread runs while the model computes.
    `next` re-raises exceptions of the source. `close` stops the thread. It is woken for half of
    `depth` at once, as each wake-up also costs the reader time.
    """

    def __init__(self, source: Iterable[Item], depth: int):
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
        except BaseException as error:  # including StopIteration; passed on to the reader
            self._ready.put((None, error))

    def __next__(self) -> Item:
        item, error = self._ready.get()
        if error is not None:
            self._ready.put((None, error))  # for further calls
            raise error
        self._taken += 1
        if self._taken == self._bundle:
            self._room.release(self._bundle)
            self._taken = 0
        return item  # type: ignore[return-value]

    def close(self) -> None:
        """Stop the thread and drop prefetched items."""
        self._closed = True
        self._room.release()
        self._thread.join()
