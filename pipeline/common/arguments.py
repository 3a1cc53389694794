"""Options of the commands that have no configuration."""

import argparse
import sys
from typing import NoReturn

from pipeline.common import screen
from pipeline.common.errors import ConfigError, Exit


class Arguments(argparse.ArgumentParser):
    """A parser that explains a mistake in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Print the mistake and exit."""
        screen.tell(ConfigError(f"{message}; --help lists the arguments"))
        sys.exit(Exit.USER)
