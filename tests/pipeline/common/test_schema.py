"""The base of all schemas."""

from dataclasses import dataclass
from typing import Any

import pytest

from pipeline.common.schema import Section, option, without_effect
from pipeline.errors import ConfigError
from tests.support.refusals import refused


@dataclass(kw_only=True)
class Part(Section, key="part"):
    rate: float = option(1.0, above=0)
    free: float | None = option(None)
    many: list[float] = option([])
    nested: dict[str, Any] = option({})


@dataclass(kw_only=True)
class Switched(Section):
    _only = {"power": ("name", "b", "c"), "count": ("folder",), "stop": ("span",)}  # noqa: RUF012 -- a ClassVar of Section

    name: str = option("a")
    folder: str | None = option(None)
    power: float = option(1.0)
    count: int = option(1)
    span: int = option(1)
    stop: int = option(0)
    inner: Any = None


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("name", ["rate", "free", "many", "nested"])
def test_no_setting_is_infinite_or_nan(name: str, number: float) -> None:
    value = {"many": [1.0, number], "nested": {"a": {"b": [number]}}}.get(name, number)
    with refused(ConfigError, key=f"part.{name}"):
        Part(**{name: value})


def test_what_another_value_switches_off_is_found() -> None:
    found = without_effect(Switched(power=2.0, count=3, inner=Switched(name="b", power=2.0)))
    assert list(found) == ["power=2.0 has no effect with name=a", "count=3 has no effect with folder=null"]
    assert list(without_effect(Switched(stop=2))) == ["stop=2 has no effect with span=1"]
    assert not list(without_effect(Switched(name="b", power=2.0, folder="x", count=3, span=2, stop=1)))
