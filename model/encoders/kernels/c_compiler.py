"""Whether a kernel can be built here: Triton compiles its launchers at run time."""

import os
import shutil
import sysconfig
from pathlib import Path

COMPILERS = ("cc", "gcc", "clang")  # Triton builds its launchers with one of them


def has_compiler() -> bool:
    """Return whether this machine has a C compiler and Python's headers."""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return headers.exists() and any(shutil.which(name) for name in (os.environ.get("CC", ""), *COMPILERS) if name)
