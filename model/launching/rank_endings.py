"""What is known of ranks that ended without leaving an exit code: a signal, memory, or nothing."""

import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path

_CGROUPS, _MACHINE = Path("/sys/fs/cgroup"), Path("/proc/vmstat")


def signal_name(code: int) -> str | None:
    """Return the signal that an exit code means, or None.

    Codes are negative in Python, 128 + n of a shell, and 256 - n where a program exited with -n.
    """
    number = -code if code < 0 else 256 - code if code > 192 else code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def oom_kills() -> dict[str, int]:
    """Return how many processes the kernel ended for lack of memory, by where they ran.

    Counters that this process may not read are missing.
    """
    try:
        cgroup = Path("/proc/self/cgroup").read_text().rpartition("0::")[2].strip()
    except OSError:
        cgroup = "/"
    places = {
        "this container": [_CGROUPS / cgroup.strip("/") / "memory.events", _CGROUPS / "memory.events"],
        "this machine": [_MACHINE],
    }
    kills: dict[str, int] = {}
    for name, files in places.items():
        for path in files:
            with contextlib.suppress(OSError, ValueError, KeyError):
                kills.setdefault(name, int(dict(map(str.split, path.read_text().splitlines()))["oom_kill"]))
    return kills


def describe(oom_before: dict[str, int], ranks: Sequence[str], signals: Sequence[int], launcher: int | None) -> str:
    """Return why `ranks` left no exit code; nothing if all of them did.

    Args:
        oom_before: the result of `oom_kills` before they were started.
        ranks: those without an exit code.
        signals: what this process was sent and passed on.
        launcher: the launcher's exit code.
    """
    if not ranks:
        return ""
    if signals:
        return f"{signal.Signals(signals[0]).name} before anything was saved"
    name = signal_name(launcher) if launcher else None
    now = oom_kills()
    memory = " (the kernel counted no kill for memory)" if now else ""
    for place, before in oom_before.items():
        if (more := now.get(place, before) - before) > 0:
            memory = f" (out of memory: the kernel ended {more} of the processes of {place} meanwhile)"
            break
    return f"{'; '.join(f'{rank} was killed' for rank in ranks)}{f' by {name}' if name else ''}{memory}"
