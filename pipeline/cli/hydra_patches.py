"""Changes of Hydra 1.3 and OmegaConf 2.3, made on import: a value in a file is what it would be when typed."""

import argparse
import functools
import re
from typing import Any

from omegaconf import FloatNode, IntegerNode, _utils

# A number as people read it, where an underscore parts thousands: YAML, Hydra and int() take 1_0 for 10.
WHOLE = r"[+-]?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:_\d{3})+)"
NUMBER = re.compile(rf"(?:{WHOLE}(?:\.\d*)?|[+-]?\.\d+)(?:[eE][+-]?\d+)?")
TAG = "tag:yaml.org,2002:"
OF_OMEGACONF = _utils.get_yaml_loader


@functools.cache
def plain_loader() -> Any:
    """Return OmegaConf's loader of YAML, by which values are those of the command line: `no` and `1:30` are texts.

    YAML 1.1 reads false, 90, and 8 for `010`.
    """
    loader = OF_OMEGACONF()
    loader.yaml_implicit_resolvers = {
        first: [one for one in resolvers if one[0] in (f"{TAG}null", f"{TAG}merge")]
        for first, resolvers in loader.yaml_implicit_resolvers.items()
    }
    for name, pattern, first in (
        ("bool", "true|false", "tf"),
        ("int", WHOLE, "+-0123456789"),
        ("float", rf"{NUMBER.pattern}|[+-]?\.inf|\.nan", "+-.0123456789"),
    ):
        anchored = re.compile(f"(?:{pattern})$", re.IGNORECASE)
        loader.add_implicit_resolver(f"{TAG}{name}", anchored, [*first, *first.upper()])
    return loader


def plain_number(convert: Any) -> Any:
    """Return a node's conversion of a value to a number that refuses an underscore which parts no thousands."""

    def converted(node: Any, value: Any) -> Any:
        stray = isinstance(value, str) and "_" in value and not NUMBER.fullmatch(value)
        return convert(node, None if stray else value)  # it refuses None

    return converted


_utils.get_yaml_loader = plain_loader
for kind in (IntegerNode, FloatNode):
    kind._validate_and_convert_impl = plain_number(kind._validate_and_convert_impl)  # type: ignore[method-assign]
# From Python 3.14 on argparse refuses a help that Hydra gives: an object, not a text.
argparse._ActionsContainer._check_help = lambda *_: None  # type: ignore[attr-defined]
