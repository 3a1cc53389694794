"""The errors that are the user's to mend, and the exit codes of every command.

Every exception that is not here is a bug and shows its trace.
"""

import enum
import errno
import os
from typing import ClassVar

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class Exit(enum.IntEnum):
    """What a command's exit code says; docs/operations.md has a table of them."""

    DONE = 0
    BUG = 1  # a trace says where
    USER = 2  # a configuration or an input that the user can mend; one line says which
    DIVERGED = 3  # the loss stayed infinite or undefined; the state before that is saved
    RESTART = 75  # nothing is wrong here: start the same command again (EX_TEMPFAIL of sysexits.h)
    INTERRUPTED = 130  # Ctrl-C, where nothing was to be saved


class UserError(Exception):
    """A user's mistake. The message says what is wrong, where, and how to fix it.

    Args:
        message: one sentence or two, `KEY=VALUE: what is wrong; what to do`.
        key: the dotted config key to change, where there is one.
        path: the file or folder that is wrong.
        line: the line in `path`, from 1.
    """

    code: ClassVar[Exit] = Exit.USER

    def __init__(
        self, message: str, *, key: str | None = None, path: object = None, line: int | None = None
    ):
        super().__init__(message)
        self.key, self.line = key, line
        self.path = None if path is None else str(path)


class ConfigError(UserError):
    """A configuration that cannot work: a bad value, or values that exclude each other."""


class InputError(UserError):
    """An input that is missing, broken, or does not fit another input."""


class StoreError(UserError):
    """An object store that refuses, or an object that changed: never a broken document."""


class Diverged(UserError):
    """Training that does not get anywhere any more."""

    code = Exit.DIVERGED


class Restart(Exception):
    """Work that was cut short through no fault of its own: the same command goes on with it."""


def disk_failure(error: BaseException) -> str | None:
    """Return what the system says of a disk that is full, limited or not to be written, if it does.

    Engines and libraries wrap its errors in their own: its words stay.
    """
    said = (os.strerror(code) for code in _DISK)
    return next((words for words in said if words in str(error)), None)


def first_line(error: BaseException) -> str:
    """What an error says, without what libraries add below it; its kind where it says nothing."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
