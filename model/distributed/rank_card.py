"""Rank card: run, code, versions and settings of a rank, to compare with rank 0's.

A rank that differs would train without an error but give wrong weights.
"""

import dataclasses
import hashlib
import json
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from model.distributed.environment import RUN
from pipeline.console.formatting import flatten, pluralize

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "deepspeed")
OF_A_NODE = ("heartbeat", "threads")  # settings that may differ between nodes
SHOWN = 3  # differences listed in a message


@dataclass(frozen=True)
class RankCard:
    """Properties that all ranks of a training must share, and this rank's host."""

    run: str  # distinguishes trainings on the same machines
    out: str
    host: str
    world: int
    fingerprint: str  # of the stage, with its inputs
    versions: dict[str, str]
    settings: dict[str, Any]
    code: dict[str, str]  # digest of each source file

    def to_json(self) -> str:
        """Return the card as JSON."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, default=str)

    @staticmethod
    def from_json(text: str | bytes) -> "RankCard":
        """Parse a card; raises ValueError, TypeError or KeyError on invalid text."""
        return RankCard(**json.loads(text))

    def differences(self, other: "RankCard") -> str:
        """Describe how `other` differs from this card; return an empty string if it does not."""
        parts = [
            _listed("versions", self.versions, other.versions),
            _listed("code", self.code, other.code, values=False),
            _listed("settings", self.settings, other.settings),
        ]
        if self.world != other.world:
            parts.append(f"number of ranks ({self.world}, {other.world})")
        if not any(parts) and self.fingerprint != other.fingerprint:
            parts.append("data (shards or vocabulary)")
        return "; ".join(filter(None, parts))


def describe(config: Any, fingerprint: str) -> RankCard:
    """Return this process's card; `config` is a dataclass with a field `out`."""
    settings = dict(flatten(json.loads(json.dumps(dataclasses.asdict(config), default=str))))
    return RankCard(
        run=os.environ.get(RUN, ""),
        out=str(config.out),
        host=socket.gethostname(),
        world=int(os.environ.get("WORLD_SIZE", "1")),
        fingerprint=fingerprint,
        versions={"Python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES},
        settings={key: value for key, value in settings.items() if key not in OF_A_NODE},
        code=code_digests(),
    )


def code_digests() -> dict[str, str]:
    """Return a digest of every source file of the two packages."""
    files = [path for name in ("model", "pipeline") for path in (ROOT / name).rglob("*.py")]
    return {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in sorted(files)
    }


def _listed(what: str, mine: Mapping[str, Any], others: Mapping[str, Any], values: bool = True) -> str:
    keys = [key for key in sorted({*mine, *others}) if mine.get(key) != others.get(key)]
    if not keys:
        return ""
    shown = [f"{key} ({mine.get(key)}, {others.get(key)})" if values else key for key in keys]
    more = f" and {pluralize(len(keys) - SHOWN, 'more')}" if len(keys) > SHOWN else ""
    return f"{what}: {', '.join(shown[:SHOWN])}{more}"
