"""The base of all schemas."""

from dataclasses import dataclass
from typing import Any

import pytest

from pipeline.common.errors import ConfigError
from pipeline.common.schema import Section, option
from tests.refusals import refused


@dataclass(kw_only=True)
class Part(Section, key="part"):
    rate: float = option(1.0, above=0)
    free: float | None = option(None)
    many: list[float] = option([])
    nested: dict[str, Any] = option({})


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("name", ["rate", "free", "many", "nested"])
def test_no_setting_is_infinite_or_nan(name: str, number: float) -> None:
    value = {"many": [1.0, number], "nested": {"a": {"b": [number]}}}.get(name, number)
    with refused(ConfigError, key=f"part.{name}"):
        Part(**{name: value})
