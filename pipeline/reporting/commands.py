"""The command that makes a run again, as its report shows it."""

from pathlib import Path

COMMAND = Path("logs", "command.txt")  # in a run's folder, written when the run starts


def of_run(workdir: Path) -> str | None:
    """Return the command line of the last run in a folder; None where no run left one."""
    try:
        return (workdir / COMMAND).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
