"""A thread that puts what a long stage writes into the store while the stage works on."""

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

Work = Callable[[], None]
Fetch = Callable[[Path], None]  # of a checkpoint, by its path in the stage's folder
PAUSE = 30.0  # seconds between looks for what is new


class BackgroundUpload:
    """Calls `work` again and again, and as soon as something was saved."""

    def __init__(self) -> None:
        self._work: Work = lambda: None
        self.fetch: Fetch = lambda path: None  # as `CheckpointStore.get`, for rank 0
        self._changed = threading.Condition()
        self._saved = self._done = 0
        self._error: BaseException | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def active(self) -> bool:
        """Whether anything is put anywhere."""
        return self._thread is not None

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

    def wait(self, beat: Work = lambda: None) -> None:
        """Wait until all that was saved is in the store, and call `beat` meanwhile.

        Raises:
            StoreError, Restart: it could not be put.
        """
        with self._changed:
            while self.active and self._done < self._saved and self._error is None:
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


@dataclasses.dataclass(frozen=True)
class CheckpointStore:
    """How the ranks of a training share checkpoints; without `get` they share a folder."""

    # gets a checkpoint from the store, by its path in the stage's folder
    get: Fetch | None = None
    uploads: BackgroundUpload = dataclasses.field(default_factory=BackgroundUpload)  # of rank 0

    def fetch(self, path: Path) -> None:
        """Have a checkpoint on this node."""
        if self.get is not None:
            self.get(path)

    def upload(self, beat: Work, wait: bool = True) -> None:
        """Put what is on this node, and wait until that is done, with `beat` called meanwhile."""
        self.uploads.saved()
        if wait:
            self.uploads.wait(beat)
