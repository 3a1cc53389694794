"""Tables of the package that are data: YAML files next to the modules that read them."""

import functools
from pathlib import Path
from typing import Any


@functools.cache
def read_table(module: str, name: str) -> Any:
    """Return the content of a file next to a module, whose `__file__` is given; it is read once, and not to change."""
    import yaml  # the benchmarks of GPUs do without

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it is there
    return loader(Path(module).with_name(name).read_text(encoding="utf-8")).get_single_data()
