"""Files with arguments, `@FILE`, which are read before Hydra sees a command line."""

import re
import sys
from pathlib import Path
from typing import NoReturn

from pipeline.common.errors import Exit
from pipeline.common.redact import one_line


def refuse(mistake: str) -> NoReturn:
    """Print a mistake on a command line that Hydra has not parsed yet, and exit."""
    print(f"error: {one_line(mistake)}", file=sys.stderr)
    sys.exit(Exit.USER)


def lines_of(path: str) -> list[str]:
    """Return the overrides in a file, one per line, without comments and empty lines."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        refuse(f"@{path}: cannot be read ({reason}); expected a text file, one override per line")
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]
