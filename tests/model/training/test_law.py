"""The law of `hours=`: what must hold whatever its coefficients are; what a step takes on this machine."""

import os

import pytest

from model.training import law, probe
from model.training.density import Density


def test_more_of_anything_is_never_expected_to_be_worse():
    usual = {"parameters": 1e6, "once": 2e6, "readings": 2.0, "entries": 4096}
    before = law.expect(**usual).bits
    for key, more in {"parameters": 2e6, "once": 4e6, "readings": 4.0}.items():
        assert law.expect(**usual | {key: more}).bits < before


def test_a_text_read_again_is_worth_less_than_a_new_one_and_more_than_none():
    assert law.worth(10.0, 0.5, 5.0) == 5.0, "half of it"
    assert law.worth(10.0, 1.0, 5.0) == 10.0
    assert 10.0 < law.worth(10.0, 2.0, 5.0) < 20.0
    assert law.worth(10.0, 1e6, 5.0) == pytest.approx(60.0)


def test_an_interval_is_wider_beyond_the_records():
    low, high = law.table()["range"]["tokens_read"]
    token = law.bytes_a_token(4096)
    within, far, little = (law.expect(1e6, once * token, 1.0, 4096) for once in (high, 100 * high, low / 100))
    assert within.beyond == 1.0
    assert far.beyond == pytest.approx(100)
    assert little.beyond == pytest.approx(100)
    for other in (far, little):
        assert other.high / other.low > within.high / within.low > 1


def test_no_model_is_expected_to_be_worse_than_a_guess():
    found = law.expect(1e6, 1000.0, 1.0, 4096, text=Density(3.5, 2.0))
    assert found.low < found.bits == found.high == pytest.approx(12 / 2.0)
    assert law.expect(1e5, 1e6, 2.4, 800).high > 3.07, "measured of English books"


def test_a_setting_is_between_those_of_the_nearest_sizes():
    rates = law.table()["rate"]
    sizes = sorted(rates)
    for size, value in rates.items():
        assert law.near("rate", size) == pytest.approx(value)
    assert law.near("rate", 100 * sizes[-1]) == pytest.approx(rates[sizes[-1]])


def test_rates_are_between_the_measured_ones_and_then_as_many_operations_a_second():
    rates = [(1e6, 4000.0), (1e8, 40.0)]
    assert probe.rate_at(rates, 1e7) == pytest.approx(400.0)
    assert probe.rate_at(rates, 1e5) == pytest.approx(4000.0)
    assert probe.rate_at(rates, 4e8) == pytest.approx(10.0)
    assert probe.rate_at([(1e5, 30.0), *rates], 1e5) == pytest.approx(4000.0)  # the smallest was disturbed


@pytest.mark.slow
def test_a_machine_is_measured_once_unless_it_was_busy(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for load in (9.0, 0.2):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load,))
        rates = probe.measured_rates(2, {(1, 64): 8})
        assert ("load 9.0" in capsys.readouterr().out) == (load == 9.0)
        assert probe.speed_of(2, 2, rates[0][0]) == pytest.approx(rates[0][0] * rates[0][1] / 2)
    assert probe.speed_of(2, 2, 10 * rates[0][0]) is None
    assert [rate > 0 for _, rate in rates] == [True]
    assert probe.measured_rates(2) == rates
    assert len(list(tmp_path.rglob("*.json"))) == 1
