"""Human-readable counts, durations and timestamps; nested settings by dotted key."""

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kMGT]?)B?")


WARNING = "; warning: "  # begins each warning at the end of a summary


def duration(seconds: float) -> str:
    """Format a duration: `0.4 s`, `59 s`, `7 min 14 s`, `3 h 05 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def byte_count(text: str | None) -> int:
    """Return the number of bytes in `500MB`, `20GB` or `7`; 0 if it is not one."""
    match = _SIZE.fullmatch(str(text))
    return int(float(match[1]) * 1000 ** " kMGT".index(match[2].strip() or " ")) if match else 0


def moment(iso: str) -> str:
    """Format an ISO timestamp as `2026-01-31 09:05 UTC`; other text is returned unchanged."""
    try:
        return f"{datetime.datetime.fromisoformat(iso).astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return iso


def pluralize(number: int, noun: str, ending: str = "s") -> str:
    """Format a count with its noun: `1 document`, `2,301 documents`."""
    several = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}{ending}"
    return f"{number:,} {noun if number == 1 else several}"


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings by dotted key."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
