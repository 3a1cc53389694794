"""Tables of data in files of the package, next to the modules that read them."""

from pathlib import Path
from typing import Any

import yaml


def of(module: str, name: str = "") -> Any:
    """Return the content of `name`.yaml next to a module's file, by default the module's own name."""
    path = Path(module)
    text = path.with_name(f"{name or path.stem}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
