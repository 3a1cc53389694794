"""The data pipeline: corpus, vocabulary, shards, (model), Hugging Face, GLUE, report."""

import sys
from types import TracebackType

__version__ = "0.2.0"


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say in one line what ends a command while it imports its libraries."""
    name = str(getattr(error, "name", "")).partition(".")[0]
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted; rerun the same command", file=sys.stderr)
        sys.exit(130)  # Exit.INTERRUPTED, whose import takes time
    if issubclass(kind, ModuleNotFoundError) and name not in ("pipeline", "model"):
        print(
            f"error: Python's module {name} is not installed in {sys.prefix}; first make .venv, "
            "then source .venv/bin/activate",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.__excepthook__(kind, error, trace)


# Of a command, `python -m pipeline.run`, not of a program that imports this package.
_main = getattr(sys.modules["__main__"], "__file__", None) or ""
if sys.argv[:1] == ["-m"] or _main.endswith(("model/train.py", "model/preflight.py")):
    sys.excepthook = _end
