"""Options of the commands that have no configuration."""

import argparse
import sys
from typing import NoReturn

from pipeline.common.errors import Exit


class Arguments(argparse.ArgumentParser):
    """A parser that explains a mistake in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Print the mistake and exit."""
        print(f"error: {message}; --help lists the arguments", file=sys.stderr, flush=True)
        sys.exit(Exit.USER)
