"""Errors that users can fix, and the exit codes of every command.

Any other exception is a bug and shows its traceback.
"""

import contextlib
import enum
import errno
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from pipeline.console.redact import one_line, without_secrets

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


class Exit(enum.IntEnum):
    """Exit codes of commands; see the table in docs/operations.md."""

    DONE = 0
    BUG = 1  # with a traceback
    USER = 2  # a configuration or input that the user can fix; one line names it
    DIVERGED = 3  # the loss stayed non-finite; the last finite state is saved
    RESTART = 75  # nothing is wrong: rerun the same command (EX_TEMPFAIL of sysexits.h)
    INTERRUPTED = 130  # Ctrl-C with nothing to save


_BEGIN, _END = "\ue000", "\ue001"  # around words that a run says otherwise than a stage


def named(words: str) -> str:
    """Mark a key of a stage in a cure, so that a run can say it with its prefix."""
    return f"{_BEGIN}{words}{_END}"


BY_FORCE = named("with force=true")


def rendered(text: str, say: Callable[[str], str] = str) -> str:
    """Return a text without marks, whose words `say` may replace."""
    return re.sub(f"{_BEGIN}([^{_END}]*){_END}", lambda found: say(found[1]), text)


class _Told(Exception):
    """An exception whose message a person reads: one line, without secrets."""

    code: ClassVar[Exit]
    RECORDED: ClassVar[tuple[str, ...]] = ("problem",)

    def __init__(self, message: str):
        super().__init__(one_line(rendered(message)))

    def record(self) -> dict[str, Any]:
        """Return the fields for JSON, without secrets."""
        fields = without_secrets({name: getattr(self, name) for name in self.RECORDED})
        return {"kind": type(self).__name__, **fields, "code": int(self.code)}


UNSET = object()  # unlike null, which users can set


def shown(value: object) -> str:
    """Return a value as users type it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


class UserError(_Told):
    """A user's mistake, as `PLACE: what is wrong; what to do`.

    The place is `KEY=VALUE` if a value is given, else `PATH, line LINE` or `PATH`, else `KEY`.

    Args:
        problem: what is wrong, and what to do.
        key: the dotted config key to change, if any.
        value: the value of `key`.
        path: the offending file or folder.
        line: the line in `path`, counted from 1.
        where: what the sentence begins with, such as the stage.
    """

    code = Exit.USER
    RECORDED = ("problem", "key", "value", "path", "line", "where")

    def __init__(
        self,
        problem: str,
        key: str | None = None,
        value: object = UNSET,
        *,
        path: object = None,
        line: int | None = None,
        where: str | None = None,
    ):
        self.problem, self.key, self.line, self.where = problem, key, line, where
        self.path = None if path is None else str(path)
        self.value = None if value is UNSET else shown(value)
        if self.value is not None:
            place: str | None = f"{key}={self.value}"
        elif self.path is not None:
            place = self.path if line is None else f"{path}, line {line}"
        else:
            place = key
        super().__init__(": ".join(filter(None, (where, place, problem))))

    def but(self, **changes: Any) -> "UserError":
        """Return this error with other fields."""
        changed = error_from_record(self.record() | changes)
        assert isinstance(changed, UserError)
        return changed


class ConfigError(UserError):
    """An invalid configuration: a bad value, or values that exclude each other."""


class InputError(UserError):
    """An input that is missing, malformed or inconsistent with another input."""


class StoreError(UserError):
    """A request that the object store refused, or an object that changed while it was read."""


class Diverged(UserError):
    """Training that diverged."""

    code = Exit.DIVERGED


class Restart(_Told):
    """Work that was interrupted through no fault of its own; rerun the same command to resume.

    Args:
        problem: what happened.
        again: what to do.
    """

    code = Exit.RESTART

    def __init__(self, problem: str, again: str = ""):
        self.problem, self.again = problem, again
        super().__init__("; ".join(filter(None, (problem, again))))


def error_from_record(record: Mapping[str, Any]) -> UserError | Restart:
    """Return the error of a record."""
    fields = {name: value for name, value in record.items() if name not in ("kind", "code")}
    if record["kind"] == "Restart":
        return Restart(**fields)
    if fields["value"] is None:
        del fields["value"]
    return {kind.__name__: kind for kind in UserError.__subclasses__()}.get(record["kind"], UserError)(**fields)


def read_errors(text: str) -> list[UserError | Restart]:
    """Return the errors whose records are lines of a log; srun writes a task's number before each."""
    errors = []
    for line in text.splitlines():
        _, begin, rest = line.partition('{"kind": ')
        with contextlib.suppress(ValueError, LookupError, TypeError):
            errors += [error_from_record(json.loads(begin + rest))] if begin else []
    return errors


def disk_failure(error: BaseException) -> str | None:
    """Return the system's text for ENOSPC, EDQUOT, EFBIG, EROFS or EIO if `error` contains it.

    Engines and libraries wrap system errors in their own types but keep the text.
    """
    texts = (os.strerror(code) for code in _DISK)
    return next((text for text in texts if text in str(error)), None)


def is_panic(error: BaseException) -> bool:
    """Return whether a library written in Rust gave up; such errors are no `Exception`."""
    return type(error).__name__ == "PanicException"


@contextlib.contextmanager
def refuse_panics(what: str) -> Iterator[None]:
    """Turn a panic in the body into InputError; `what` names the part of the input at fault."""
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise InputError(f"fails ({first_line(error)}); use another one", path=what) from error


def hub_cure(path: os.PathLike[str]) -> str:
    """Return how to get what has the form of a model's name on the hub and is not here, or an empty string."""
    if os.path.exists(path) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(path)):
        return ""
    return f"; if it is a model of the hub, run hf download {path} --local-dir FOLDER, and name that folder"


@contextlib.contextmanager
def readable(path: object) -> Iterator[None]:
    """Convert an OSError or UnicodeDecodeError raised in the body to an InputError."""
    try:
        yield
    except OSError as error:
        cure = "; change its permissions or move it away" if error.errno in (errno.EACCES, errno.EPERM) else ""
        what = f"cannot be read ({error.strerror or error}){cure}"
        raise InputError(what, path=error.filename or path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"not valid UTF-8 at byte {error.start}; re-encode it as UTF-8", path=path) from error


@contextlib.contextmanager
def writable(place: object, key: str = "out") -> Iterator[None]:
    """Convert an OSError raised in the body to an InputError; `place` is the value of `key`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"is not writable ({error.strerror}); set another {key}", key, place) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if the message is empty."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
