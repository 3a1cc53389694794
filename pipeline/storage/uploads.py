"""A thread that puts what a long stage writes into the store while the stage works on."""

import threading
from collections.abc import Callable
from pathlib import Path

Work = Callable[[], None]
Fetch = Callable[[Path], None]  # of a checkpoint, by its path in the stage's folder
PAUSE = 30.0  # seconds between looks for what is new


class BackgroundUpload:
    """Calls `work` again and again, and as soon as something was saved.

    The ranks of a training have one each, by which they share checkpoints; only that of rank 0 is started.
    """

    def __init__(self, fetch: Fetch | None = None) -> None:
        """Have checkpoints on this node by `fetch`; without, all ranks share a folder."""
        self.shared = fetch is None
        self.fetch = fetch or (lambda path: None)
        self._work: Work = lambda: None
        self._changed = threading.Condition()
        self._saved = self._done = 0
        self._error: BaseException | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self, work: Work) -> None:
        """Begin; `work` puts all that is new."""
        self._work = work
        self._thread = threading.Thread(target=self._run, name="upload", daemon=True)
        self._thread.start()

    def saved(self) -> None:
        """Have what was saved just now put soon."""
        with self._changed:
            self._saved += 1
            self._changed.notify_all()

    def upload(self, beat: Work, wait: bool = True) -> None:
        """Put what is on this node, and wait until that is done, with `beat` called meanwhile."""
        self.saved()
        if wait:
            self.wait(beat)

    def wait(self, beat: Work = lambda: None) -> None:
        """Wait until all that was saved is in the store, and call `beat` meanwhile.

        Raises:
            StoreError, Restart: it could not be put.
        """
        with self._changed:
            while self._thread is not None and self._done < self._saved and self._error is None:
                beat()
                self._changed.wait(1.0)
            if self._error is not None:
                raise self._error

    def close(self) -> None:
        """End the thread when it is done with what it does."""
        if self._thread is None:
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._thread = None

    def _run(self) -> None:
        while self._error is None:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._done < self._saved, PAUSE)
                if self._closing and self._done == self._saved:
                    return
                saved = self._saved
            failed = None
            try:
                self._work()
            except BaseException as error:
                failed = error
            with self._changed:
                self._done, self._error = saved, failed
                self._changed.notify_all()
