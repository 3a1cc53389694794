"""What a rank is: its run, its code, its versions and its settings, for comparing it with rank 0.

A rank that differs would train along without an error, towards wrong weights.
"""

import dataclasses
import functools
import hashlib
import json
import os
import platform
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline.common.formatting import pluralize

RUN = "TRAIN_RUN"  # environment: a name that the launcher gives to one start of one training
HOSTS = "HOSTS"  # environment: the names of the nodes in the order of ranks, with commas
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "deepspeed")
OF_A_NODE = ("heartbeat", "threads", "peak_tflops")  # settings that nodes may have each their own
SHOWN = 3  # differences that a message has


@dataclass(frozen=True)
class RankCard:
    """All that ranks of one training must have in common, and where this one is."""

    run: str  # what tells this training from another on the same machines
    out: str
    host: str
    world: int
    fingerprint: str  # of the stage, with its inputs
    versions: dict[str, str]
    settings: dict[str, Any]
    code: dict[str, str]  # digest of each source file

    def to_json(self) -> str:
        """Return the card as text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, default=str)

    @staticmethod
    def from_json(text: str | bytes) -> "RankCard":
        """Read a card; a text that is none raises ValueError, TypeError or KeyError."""
        return RankCard(**json.loads(text))

    def same_run(self, other: "RankCard") -> bool:
        """Return whether both belong to one training."""
        return (self.run, self.out) == (other.run, other.out)

    def differences(self, other: "RankCard") -> str:
        """Say what `other` has that differs from this one; empty where nothing does."""
        parts = [
            _listed("versions", self.versions, other.versions),
            _listed("code", self.code, other.code, values=False),
            _listed("settings", self.settings, other.settings),
        ]
        if self.world != other.world:
            parts.append(f"number of ranks ({self.world}, {other.world})")
        if not any(parts) and self.fingerprint != other.fingerprint:
            parts.append("data (its shards or its vocabulary are not the same)")
        return "; ".join(filter(None, parts))


def describe(config: Any, fingerprint: str) -> RankCard:
    """Return this process's card; `config` is a dataclass with a field `out`."""
    settings = dict(_flat(json.loads(json.dumps(dataclasses.asdict(config), default=str))))
    return RankCard(
        run=os.environ.get(RUN, ""),
        out=str(config.out),
        host=socket.gethostname(),
        world=int(os.environ.get("WORLD_SIZE", "1")),
        fingerprint=fingerprint,
        versions={"Python": platform.python_version()}
        | {name: metadata.version(name) for name in PACKAGES},
        settings={key: value for key, value in settings.items() if key not in OF_A_NODE},
        code=code_digests(ROOT),
    )


@functools.cache
def code_digests(root: Path) -> dict[str, str]:
    """Return a digest of every source file of the two packages."""
    files = [path for name in ("model", "pipeline") for path in (root / name).rglob("*.py")]
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        for path in sorted(files)
    }


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _listed(
    what: str, mine: Mapping[str, Any], others: Mapping[str, Any], values: bool = True
) -> str:
    keys = [key for key in sorted({*mine, *others}) if mine.get(key) != others.get(key)]
    if not keys:
        return ""
    told = [f"{key} ({mine.get(key)}, {others.get(key)})" if values else key for key in keys]
    more = f" and {pluralize(len(keys) - SHOWN, 'more')}" if len(keys) > SHOWN else ""
    return f"{what}: {', '.join(told[:SHOWN])}{more}"
