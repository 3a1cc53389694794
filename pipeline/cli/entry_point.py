"""Entry point of every command: its configuration, one-line errors, exit codes."""

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from pipeline import __version__
from pipeline.console import output, terminal
from pipeline.errors import ConfigError, Exit, InputError, Restart, UserError, first_line, is_panic
from pipeline.records import run_file

Config = TypeVar("Config")
IsFirst = Callable[[str], bool]  # whether no other process has printed a line


def compose_config(name: str, schema: type[Config], words: list[str], asked: bool) -> Config | None:
    """Return the configuration that Hydra composes, see `composing.compose_config`."""
    from pipeline.cli import composing  # Hydra takes 0.3 s

    return composing.compose_config(name, schema, words, asked)


def run(
    name: str,
    schema: type[Config],
    task: Callable[[Config], Any],
    argv: list[str] | None = None,
    is_first: IsFirst = lambda line: True,
    read: Callable[..., Config | None] = compose_config,
) -> NoReturn:
    """Compose `conf/NAME.yaml` with the command line, validate it, run `task`, and exit.

    With `--from RUN/run.json#STAGE` nothing is composed: the configuration is in that record.
    Exits with a code of `pipeline.errors.Exit`. A mistake or a restart prints one line on
    stderr, unless another process that does the same has printed it (`is_first`); a bug shows its
    traceback.
    """
    words = sys.argv[1:] if argv is None else argv
    if "--version" in words:
        print(f"bert-pipeline {__version__}")
        sys.exit(Exit.DONE)
    config: Config | None = None

    def body() -> None:
        nonlocal config
        config = parse_argv(name, schema, words, read)
        if config is not None:
            task(config)

    run_guarded(body, is_first, lambda: bool(getattr(config, "force", None)))


def run_guarded(
    body: Callable[[], Any], is_first: IsFirst = lambda line: True, remakes: Callable[[], bool] = lambda: False
) -> NoReturn:
    """Run `body` and exit, see `run`; a command that `remakes` its folder would delete what can be resumed."""
    output.outlive_readers()
    try:
        body()
    except UserError as error:
        _end(error, is_first)
    except Restart as error:
        _end(Restart(error.problem, _without_force(error.again, remakes())), is_first)
    except KeyboardInterrupt:
        print(_without_force("interrupted; rerun the same command", remakes()), file=sys.stderr)
        sys.exit(Exit.INTERRUPTED)
    except BaseException as error:
        if not is_panic(error):
            raise
        _end(InputError(f"a library fails on this input ({first_line(error)})"), is_first)
    if output.is_full() and terminal.RECORDS not in os.environ:  # that of a stage is its log
        _end(InputError("no space left; what was printed is incomplete", path="standard output"), is_first)
    sys.exit(Exit.DONE)


def parse_argv(name: str, schema: type[Config], words: list[str], read: Callable[..., Config | None]) -> Config | None:
    """Return the configuration of a command line; None if it asks for help or what an option shows.

    Raises:
        UserError: the command line, a YAML file or the record of the run is wrong.
    """
    help_options = {"--help", "-h"} & set(words)
    words = [word for word in words if word not in help_options]
    if run_file.OPTION in words and not help_options:
        index = words.index(run_file.OPTION)
        if index + 1 == len(words):
            raise ConfigError("a stage is required, as in RUN/run.json#STAGE", run_file.OPTION)
        return run_file.config_of(words[index + 1], schema, words[:index] + words[index + 2 :])
    try:
        return read(name, schema, words, bool(help_options))
    except UserError as error:
        if not help_options or not words:
            raise
        read(name, schema, [], True)  # which a message may have asked for
        terminal.say(f"warning: {error}", sys.stderr)
        return None


def _without_force(text: str, remakes: bool) -> str:
    return text.replace("the same command", "the command without force") if remakes else text


def _end(error: UserError | Restart, is_first: IsFirst) -> NoReturn:
    if is_first(str(error)):
        terminal.tell(error)
    sys.exit(error.code)
