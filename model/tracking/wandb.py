"""Weights & Biases."""

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from model.config import Json, Metrics, TrackingConfig
from model.tracking.metrics_file import METRICS, RUN_ID, name_in, read_metrics
from model.tracking.sink import Row, Sink, tables
from pipeline.console import redact, terminal
from pipeline.errors import ConfigError, InputError, first_line, named
from pipeline.storage.atomic import write_text

FORGE = "forge.coreweave.com"  # domain of W&B's own server since wandb 0.31


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
    mode = os.environ.get("WANDB_MODE")
    if mode is None:
        return "online" if has_key() else "offline"
    if mode not in (modes := tables()["modes"]):
        raise ConfigError(
            f"WANDB_MODE={mode!r} is none of {', '.join(modes)}; set one of these, unset it, or set tracking.mode",
            "tracking.mode",
            "auto",
        )
    return modes[mode]


def project_of(typed: str | None) -> str:
    """Return the project of runs: as typed, or by W&B's variable."""
    return typed or os.environ.get("WANDB_PROJECT") or "bert-pipeline"


def init_run(folder: Path, mode: Any, group: str, project: str | None, settings: Json, **about: Any) -> Any:
    """Start a W&B run, whose logs go to `folder`; `about` are further arguments of `wandb.init`."""
    import wandb

    return wandb.init(
        project=project_of(project),
        group=os.environ.get("WANDB_RUN_GROUP") or group,
        resume="allow" if mode == "online" else None,
        dir=folder,
        mode=mode,
        config=redact.without_secrets(settings),
        settings=wandb.Settings(console="off", silent=True, init_timeout=30),
        **about,
    )


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
    earlier = name_in(out / RUN_ID) if start else None
    run_id = os.environ.get("WANDB_RUN_ID") or earlier or secrets.token_hex(4)
    write_text(out / RUN_ID, run_id)
    for attempt in (mode, "offline"):
        try:
            group = out.absolute().parent.name
            return init_run(out, attempt, group, config.project, settings, id=run_id, job_type="train")
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


def send(run: Any, kind: str, step: int, figures: Metrics) -> None:
    """Send one row to a W&B run."""
    run.log({f"{kind}/{key}": value for key, value in figures.items()}, step=step)


def _forget_wandb() -> None:
    """Close the connection to W&B's service, which would otherwise fail again at exit."""
    import wandb

    with contextlib.suppress(Exception):
        wandb.teardown()


class WeightsAndBiases(Sink):
    """A run of W&B, which forwards alerts as its user chose; without one nothing happens."""

    def __init__(self, run: Any, out: Path):
        self._run = run
        if run is not None and (rows := read_metrics(out)):
            self._try(lambda run: catch_up(run, rows))

    def log_metrics(self, row: Row) -> None:
        """Log metrics."""
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
