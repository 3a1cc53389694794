"""Tracking of metrics: metrics.jsonl (authoritative), Weights & Biases, and the terminal."""

import contextlib
import datetime
import functools
import json
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from model.config import Figures, Json, TrackingConfig
from pipeline.common.prometheus import Exporter
from pipeline.common.tables import read_table
from pipeline.console import redact, terminal
from pipeline.console.bars import Bar
from pipeline.console.formatting import duration
from pipeline.errors import ConfigError, InputError, first_line, named
from pipeline.storage.atomic import write_text

TRAINER_URL = "KUBEFLOW_TRAINER_SERVER_URL"
TRAINER_AUTHORITY = "KUBEFLOW_TRAINER_SERVER_CA_CERT"  # a file
TRAINER_TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # a file, which Kubernetes renews
TRAINER_ANSWER = 5.0  # seconds for a request
TRAINER_EVERY = 5.0  # seconds between two requests

METRICS = "metrics.jsonl"
FIGURES = ("train", "validation")  # kinds of its rows
RUN_ID = "wandb-run-id"
OWNER = ".metrics-of"  # the name of the folder of checkpoints that these two belong to
FORGE = "forge.coreweave.com"  # domain of W&B's own server since wandb 0.31


@functools.cache
def tables() -> dict[str, dict[str, str]]:
    """Return how figures are shown, and the values of WANDB_MODE."""
    return dict(read_table(__file__, "tracking.yaml"))


def has_key() -> bool:
    """Return whether a W&B key is set, in the environment or by `wandb login`."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    import wandb
    from requests.utils import get_netrc_auth

    server = urlsplit(os.environ.get("WANDB_BASE_URL") or wandb.Settings().base_url).netloc
    # wandb also reads keys of earlier logins, stored under the server's old name.
    hosts = (server, "api.wandb.ai") if server.endswith(FORGE) else (server,)
    return any(get_netrc_auth(f"https://{host}") for host in hosts)


def mode_of(typed: str) -> str:
    """Return whether runs are online, offline or disabled: as typed, by W&B's variables, by a key.

    Raises:
        ConfigError: W&B does not know the value of WANDB_MODE.
    """
    if typed != "auto":
        return typed
    if os.environ.get("WANDB_DISABLED", "").lower() in ("1", "on", "true", "yes"):
        return "disabled"
    wanted = os.environ.get("WANDB_MODE")
    if wanted is None:
        return "online" if has_key() else "offline"
    if wanted not in (modes := tables()["modes"]):
        raise ConfigError(
            f"WANDB_MODE={wanted!r} is none of {', '.join(modes)}; set one of these, unset it, or set tracking.mode",
            "tracking.mode",
            "auto",
        )
    return modes[wanted]


def project_of(typed: str | None) -> str:
    """Return the project of runs: as typed, or by W&B's variable."""
    return typed or os.environ.get("WANDB_PROJECT") or "bert-pipeline"


def open_wandb(config: TrackingConfig, out: Path, start: int, settings: Json) -> Any:
    """Start the W&B run, or resume that of the step `start`; None if W&B is off or unavailable.

    What starts at 0 is a run of its own: W&B ignores steps before the last one of a run.

    Raises:
        ConfigError: As `mode_of`.
        InputError: W&B is unavailable and `mode` is online.
    """
    mode: Any = "disabled" if config.name == "none" else mode_of(config.mode)
    if mode == "disabled":
        return None
    import wandb

    known = _name_in(out / RUN_ID) if start else None
    run_id = os.environ.get("WANDB_RUN_ID") or known or secrets.token_hex(4)
    write_text(out / RUN_ID, run_id)
    for attempt in (mode, "offline"):
        try:
            return wandb.init(
                project=project_of(config.project),
                group=os.environ.get("WANDB_RUN_GROUP") or out.absolute().parent.name,
                job_type="train",
                id=run_id,
                resume="allow" if attempt == "online" else None,
                dir=out,
                mode=attempt,
                config=redact.without_secrets(settings),
                settings=wandb.Settings(console="off", silent=True, init_timeout=30),
            )
        except Exception as error:  # no failure of W&B may stop training
            if config.mode == "online":
                raise InputError(
                    f"W&B cannot be reached ({error}); check key and network, or set {named('tracking.mode')}=offline",
                    "tracking.mode",
                    "online",
                ) from error
            print(f"warning: W&B failed to start {attempt} ({first_line(error)})", flush=True)
            _forget_wandb()  # its service holds the run's id and would refuse the next attempt
    return None


def catch_up(run: Any, rows: list[Json]) -> None:
    """Send the rows that a W&B run lacks: a start that was killed may not have sent or written all of its own.

    An offline run has all of them in its newest folder; those of earlier starts, which `wandb sync` may not be able to
    read, are renamed.
    """
    for row in rows:
        if row["step"] >= run.starting_step:
            send(run, row["kind"], row["step"], {key: row[key] for key in row if key not in ("kind", "step")})
    if run.offline:
        newest = Path(run.dir).parent
        for other in newest.parent.glob(f"offline-run-*-{run.id}"):
            if other.name != newest.name:
                other.rename(other.with_name(f"earlier-{other.name}"))


def send(run: Any, kind: str, step: int, figures: Figures) -> None:
    """Send one row to a W&B run."""
    run.log({f"{kind}/{key}": value for key, value in figures.items()}, step=step)


def _forget_wandb() -> None:
    """Close the connection to W&B's service, which would otherwise fail again at exit."""
    import wandb

    with contextlib.suppress(Exception):
        wandb.teardown()


def take_back(out: Path, run: Path) -> None:
    """Put away the curve of a training with other settings in `out`, and take back this one's.

    `run` is the folder of this training's checkpoints, `out/checkpoints/FINGERPRINT`; the other's
    curve goes to its own.
    """
    mark = out / OWNER
    owner = _name_in(mark) or run.name  # earlier releases did not write it
    if owner != run.name:
        for name in (METRICS, RUN_ID):
            if (out / name).exists():
                away = run.parent / owner
                away.mkdir(parents=True, exist_ok=True)
                (out / name).replace(away / name)
    write_text(mark, run.name)  # before this one's files come: they are not the other's
    for name in (METRICS, RUN_ID):
        if (run / name).exists() and not (out / name).exists():
            (run / name).replace(out / name)


def share(out: Path, other: Path, run: Path, step: int) -> None:
    """Give a training the curve of another one up to `step`, before `take_back`.

    `run` and `other` are the folders of their checkpoints in `out`.
    """
    owner = _name_in(out / OWNER)
    source = (out if owner == other.name else other) / METRICS
    target = (out if owner == run.name else run) / METRICS
    if source.exists():
        run.mkdir(parents=True, exist_ok=True)
        write_text(target, "".join(line for line, row in rows_of(source) if row["step"] <= step))


def rows_of(path: Path) -> Iterator[tuple[str, Json]]:
    """Yield the lines of a curve with their rows; damaged ones are left out, with a warning.

    A killed writer may have left a part of the last one, which is written again.
    """
    lines = path.read_bytes().splitlines() if path.exists() else []
    damaged = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if isinstance(row["step"], int) and isinstance(row["kind"], str):
                yield f"{line.decode()}\n", row
                continue
        except (ValueError, TypeError, KeyError):
            pass
        if number < len(lines) or line.endswith(b"}"):
            damaged.append(str(number))
    if damaged:
        print(f"warning: {path}: damaged, left out: line {', '.join(damaged)}", flush=True)


def _name_in(path: Path) -> str | None:
    """Return the name that a file holds; None if there is none, or it is damaged."""
    text = path.read_bytes().decode(errors="replace") if path.exists() else ""
    return text if re.fullmatch(r"\w[\w.-]*", text, re.ASCII) else None


@dataclass(frozen=True)
class Row:
    """What a training shows after `step` updates."""

    kind: str  # train or validation; update, saving and checkpoint have no figures
    step: int
    figures: Figures
    left: float  # seconds until the last step, about


class Sink:
    """A place where a training shows how it goes; each takes what it can show."""

    def take(self, row: Row) -> None:
        """Show a row."""

    def alert(self, title: str, text: str) -> None:
        """Tell a person at once."""

    def close(self) -> None:
        """Show what waits, and end."""


class Tracker:
    """The sinks of rank 0; other ranks have none."""

    def __init__(self, config: TrackingConfig, out: Path, rank: int, start: int, steps: int, settings: Json):
        self._start, self._steps, self._began = start, steps, time.monotonic()
        self.sinks: list[Sink] = []
        if rank == 0:
            self.sinks += [
                Curve(out, start),
                WeightsAndBiases(open_wandb(config, out, start, settings), out),
                *([TrainJobStatus(os.environ[TRAINER_URL], steps)] if TRAINER_URL in os.environ else []),
                Prometheus(config, start, steps),
                Terminal(start, steps),
            ]

    def log(self, kind: str, step: int, figures: Mapping[str, float] = {}) -> None:
        """Pass one row to all sinks; `step` counts updates from 1."""
        spent = (time.monotonic() - self._began) / max(step - self._start, 1)
        row = Row(kind, step, dict(figures), (self._steps - step) * spent)
        for sink in self.sinks:
            sink.take(row)

    def alert(self, title: str, text: str) -> None:
        """Pass an alert to all sinks."""
        for sink in self.sinks:
            sink.alert(title, text)

    def say(self, text: str) -> None:
        """Print a line on rank 0."""
        if self.sinks:
            terminal.say(text)

    def close(self) -> None:
        """Close all sinks, the bar first."""
        for sink in reversed(self.sinks):
            sink.close()


class Curve(Sink):
    """The file metrics.jsonl, whose rows after its start a resumed run writes again."""

    def __init__(self, out: Path, start: int):
        kept = [(line, row) for line, row in rows_of(out / METRICS) if row["step"] <= start]
        write_text(out / METRICS, "".join(line for line, _ in kept))
        self._evaluated = {row["step"] for _, row in kept if row["kind"] == "validation"} & {start}
        self._file = (out / METRICS).open("a", encoding="utf-8")

    def take(self, row: Row) -> None:
        """Write figures, but not twice those of an evaluation; have them on the disk before a checkpoint."""
        if row.kind in FIGURES and not (row.kind == "validation" and row.step in self._evaluated):
            self._file.write(json.dumps({"kind": row.kind, "step": row.step, **row.figures}) + "\n")
            self._file.flush()
        if row.kind == "saving":
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        with self._file:
            os.fsync(self._file.fileno())


class WeightsAndBiases(Sink):
    """A run of W&B, which forwards alerts as its user chose; without one nothing happens."""

    def __init__(self, run: Any, out: Path):
        self._run = run
        if run is not None and (rows := read_metrics(out)):
            self._try(lambda run: catch_up(run, rows))

    def take(self, row: Row) -> None:
        """Log figures."""
        if row.kind in FIGURES:
            self._try(lambda run: send(run, row.kind, row.step, row.figures))

    def alert(self, title: str, text: str) -> None:
        """Send an alert."""
        self._try(lambda run: run.alert(title=title, text=text))

    def close(self) -> None:
        """Finish the run."""
        self._try(lambda run: run.finish())

    def _try(self, act: Callable[[Any], object]) -> None:
        """Do something with the run; continue without it if that fails.

        On a signal the launcher ends W&B's service before the rank has saved.
        """
        try:
            if self._run is not None:
                act(self._run)
        except Exception as error:  # no failure of W&B may stop training
            self._run = None
            terminal.say(f"warning: logging to W&B stopped ({first_line(error)}); see {METRICS}")
            _forget_wandb()


class Prometheus(Sink):
    """The newest figures and times, to be asked for."""

    def __init__(self, config: TrackingConfig, start: int, steps: int):
        self._exporter = Exporter(config.prometheus_host, config.prometheus_port, "tracking.prometheus_port")
        self._set, self._last = self._exporter.set, time.time()  # the last update's end
        self._set("train_steps", steps, "total updates")
        self._set("train_step", start, "updates done")
        self._set("train_start_time_seconds", self._last, "when this process started")

    def take(self, row: Row) -> None:
        """Set the gauges of a row."""
        now = time.time()
        if row.kind == "checkpoint":
            self._set("train_last_checkpoint_time_seconds", now)
        if row.kind == "update":
            self._set("train_step", row.step)
            self._set("train_step_seconds", now - self._last, "that the last update took")
            self._set("train_last_step_time_seconds", now, "when the last update was done")
            self._last = now
        for key, value in row.figures.items():
            self._set(f"{row.kind}_{key}", value)

    def close(self) -> None:
        """Stop serving."""
        self._exporter.close()


class Terminal(Sink):
    """A bar; where no terminal is, lines as well."""

    def __init__(self, start: int, steps: int):
        self._steps, self._bar = steps, Bar("train", steps, "steps", start)

    def take(self, row: Row) -> None:
        """Move the bar, or print a line of figures of training."""
        if row.kind == "update":
            self._bar.move(row.step)
        elif row.kind == "train":
            self._bar.move(row.step, one_line(row.figures))
            if not sys.stderr.isatty():
                left = duration(row.left)
                print(f"step {row.step:,}/{self._steps:,}, {left} left: {one_line(row.figures)}", flush=True)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()


def one_line(figures: Figures) -> str:
    """Format the metrics of the progress line."""
    return ", ".join(shown.format(figures[key]) for key, shown in tables()["line"].items() if key in figures)


def read_metrics(folder: Path) -> list[Json]:
    """Read the records of a run's metrics.jsonl; return an empty list if missing."""
    return [row for _, row in rows_of(folder / METRICS)]


class TrainJobStatus(Sink):
    """Sender of the newest progress to Kubeflow Trainer, which shows it in the TrainJob's status.

    Trainer sets the environment of a TrainJob's pods if its feature TrainJobStatus is on. Requests
    have a thread of their own: a slow server delays no update.
    """

    def __init__(self, url: str, steps: int):
        self._url, self._steps = url, steps
        self._newest: Json | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self._thread.start()

    def take(self, row: Row) -> None:
        """Pass on progress; one that was not sent yet is replaced."""
        if row.kind == "train":
            self._newest = {
                "lastUpdatedTime": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "progressPercentage": 100 * row.step // max(self._steps, 1),
                "estimatedRemainingSeconds": int(row.left),
                "metrics": [{"name": name, "value": f"{value:g}"} for name, value in row.figures.items()],
            }

    def close(self) -> None:
        """Send what waits, for a few seconds at most."""
        self._closing.set()
        self._thread.join(2 * TRAINER_ANSWER)

    def _send_all(self) -> None:
        sent, failed, closing = None, False, False
        while not closing:
            closing = self._closing.wait(TRAINER_EVERY)
            status = self._newest
            if status is sent:
                continue
            sent = status
            try:
                self._send(status)
            except (OSError, ValueError) as error:  # no failure of Trainer's may stop training
                if not failed:
                    print(f"warning: progress of the TrainJob is not shown ({error})", flush=True)
                failed = True

    def _send(self, status: Json | None) -> None:
        import requests  # takes 0.1 s

        token = Path(os.environ.get(TRAINER_TOKEN, "")).read_text().strip()
        answer = requests.post(
            self._url,
            json={"trainerStatus": status},
            headers={"Authorization": f"Bearer {token}"},
            timeout=TRAINER_ANSWER,
            verify=os.environ.get(TRAINER_AUTHORITY, True),
        )
        answer.raise_for_status()
