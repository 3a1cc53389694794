"""Work that only a process of its own can do, such as joining a process group once more."""

import os
import sys
import traceback
from collections.abc import Callable


def in_child(work: Callable[[], None]) -> None:
    """Do `work` in a fork of this process; exit with 1 if it fails."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(1)
