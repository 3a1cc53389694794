"""What a step takes, measured by real trainings."""

import pytest

from model.training import probe


def test_rates_are_between_the_measured_ones_and_then_as_many_operations_a_second():
    rates = [(1e6, 4000.0), (1e8, 40.0)]
    assert probe.rate_at(rates, 1e7) == pytest.approx(400.0)
    assert probe.rate_at(rates, 1e5) == pytest.approx(4000.0)
    assert probe.rate_at(rates, 4e8) == pytest.approx(10.0)
    assert probe.rate_at([(1e5, 30.0), *rates], 1e5) == pytest.approx(4000.0)  # the smallest was disturbed


@pytest.mark.slow
def test_a_machine_is_measured_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rates = probe.measured_rates(2, {(1, 64): 8})
    assert [rate > 0 for _, rate in rates] == [True]
    assert probe.measured_rates(2) == rates
    assert len(list(tmp_path.rglob("*.json"))) == 1
