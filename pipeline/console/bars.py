"""Bars: how far a command is, on its terminal, or on that of the run that started it."""

import contextlib
import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from rich import filesize

from pipeline.console import formatting
from pipeline.console.output import unfiltered
from pipeline.console.redact import redact

PLACE = "BERT_PROGRESS"  # environment: the file in which a run reads how far a stage is
EVERY = 0.25  # seconds between two pictures
WIDTH = 16  # columns of a bar

Item = TypeVar("Item")


@dataclasses.dataclass
class State:
    """How far a command is."""

    what: str
    total: float | None = None  # None: not known
    unit: str = ""  # of `total`, in the plural; B: bytes
    done: float = 0.0
    note: str = ""
    started: float = 0.0  # what was done before it began
    began: float = dataclasses.field(default_factory=time.time)

    def line(self) -> str:
        """Return the text next to the bar: how much, how fast, and how long it will take."""
        seconds = time.time() - self.began
        rate = (self.done - self.started) / max(seconds, 1e-9)
        parts = []
        if self.total or self.done:
            whole = f" of {self._amount(self.total)}" if self.total else ""
            parts.append(f"{self._amount(self.done)}{whole} {self.unit}".removesuffix(" B").strip())
        if self.total and self.total > self.done and rate > 0 and seconds > 1:
            each = self._amount(rate) if rate >= 10 or self.unit == "B" else f"{rate:.1f}"
            parts += [f"{each}/s", f"{formatting.duration((self.total - self.done) / rate)} left"]
        return ", ".join([*parts, *filter(None, [self.note])])

    def _amount(self, number: float) -> str:
        return filesize.decimal(int(number)) if self.unit == "B" else f"{number:,.0f}"


class Rows:
    """Bars on standard error, one below the other."""

    def __init__(self) -> None:
        self._states: dict[object, tuple[str, State]] = {}
        self._live: Any = None
        self._lock, self._next = threading.RLock(), 0.0

    def show(self, key: object, name: str, state: State, at_once: bool = False) -> None:
        """Draw a bar, in place of the last one with its key: at once, or when it is time."""
        with self._lock:
            self._states[key] = (name, state)
            if at_once or time.monotonic() >= self._next:
                self._next = time.monotonic() + EVERY
                self._draw()

    def remove(self, key: object) -> None:
        """Take a bar away."""
        with self._lock:
            if self._states.pop(key, None) is not None:
                self.clear()

    def clear(self) -> None:
        """Give the terminal free, for a line that stays; what is shown next draws all bars again."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def _draw(self) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=unfiltered(sys.stderr))
            self._live = Live(
                console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
            console.show_cursor(True)  # also of a process that is killed
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1), expand=True)
        for ratio in (None, None, None, 1):
            table.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
        for name, state in self._states.values():
            share = f"{min(state.done / state.total, 1):4.0%}" if state.total else ""
            bar = ProgressBar(state.total, state.done, width=WIDTH, pulse=not state.total)
            head = Text(redact(f"{name} {state.what}".strip()), style="bold")
            table.add_row(head, bar, share, Text(redact(state.line())))
        return table


ROWS = Rows()


def are_seen() -> bool:
    """Return whether the bars of this process are shown."""
    return sys.stderr.isatty() or PLACE in os.environ


class Bar:
    """How far a command is: a bar on a terminal, the file of a run, or nothing."""

    def __init__(self, what: str, total: float | None, unit: str = "", done: float = 0.0, silent: bool = False):
        self.state = State(what, total, unit, done, started=done)
        self._drawn = not silent and sys.stderr.isatty()
        place = os.environ.get(PLACE)
        self._file = Path(place) if place and not silent and not self._drawn else None
        self._next = 0.0
        self._show(at_once=True)

    def update(self, more: float = 1.0) -> None:
        """Add to what is done."""
        self.move(self.state.done + more)

    def move(self, done: float, note: str | None = None) -> None:
        """Say how much is done, and what else there is to say."""
        news = note is not None and note != self.state.note
        self.state.done = done
        self.state.note = self.state.note if note is None else note
        self._show(news)

    def _show(self, at_once: bool) -> None:
        if self._drawn:
            ROWS.show(self, "", self.state, at_once)
        elif self._file is not None and (at_once or time.monotonic() >= self._next):
            self._next = time.monotonic() + EVERY
            with contextlib.suppress(OSError):  # no reason to stop
                self._file.write_text(json.dumps(dataclasses.asdict(self.state)), encoding="utf-8")

    def close(self) -> None:
        """Take the bar away."""
        ROWS.remove(self)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def each(items: Sequence[Item], what: str, unit: str) -> Iterator[Item]:
    """Yield items, and show how many are done."""
    with Bar(what, len(items), unit) as bar:
        for item in items:
            yield item
            bar.update()


def read(path: Path) -> State | None:
    """Return what the bar of another process shows; None: it has none, or is just writing it."""
    try:
        return State(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
