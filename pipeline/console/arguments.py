"""Options of the commands that have no configuration."""

import argparse
import sys
from typing import Any, NoReturn

from pipeline.console import output, terminal
from pipeline.errors import ConfigError, Exit


class Arguments(argparse.ArgumentParser):
    """A parser that explains a mistake in one line, without the usage, and nothing that is secret."""

    def __init__(self, **options: Any):
        output.outlive_readers()
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        """Print the mistake and exit."""
        terminal.tell(ConfigError(f"{message}; --help lists the arguments"))
        sys.exit(Exit.USER)
