"""Human-readable counts, durations and timestamps."""

import datetime


def duration(seconds: float) -> str:
    """Format a duration: `0.4 s`, `59 s`, `7 min 14 s`, `3 h 05 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def moment(iso: str) -> str:
    """Format an ISO timestamp as `2026-01-31 09:05 UTC`; other text is returned unchanged."""
    try:
        return f"{datetime.datetime.fromisoformat(iso).astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return iso


def pluralize(number: int, noun: str, ending: str = "s") -> str:
    """Format a count with its noun: `1 document`, `2,301 documents`."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"
