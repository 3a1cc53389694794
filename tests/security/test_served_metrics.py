"""The figures of a training are for programs of its machine, unless the user wants more."""

import urllib.request
from contextlib import closing

import pytest

from model.config.training import TrackingConfig
from pipeline.common.ports import free_port
from pipeline.common.prometheus import Exporter
from pipeline.config.run import ExecutorConfig
from pipeline.errors import ConfigError
from tests.support.refusals import refused


@pytest.mark.parametrize("config", [TrackingConfig, ExecutorConfig])
def test_metrics_are_served_on_loopback_alone(config):
    host = config(name="none" if config is TrackingConfig else "local").prometheus_host
    assert host == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_metrics_are_served_on_the_address_that_is_set(host):
    port = free_port()
    with closing(Exporter(host, port, "tracking.prometheus_port")) as exporter:
        exporter.set("train_loss", 1.5)
        assert exporter._server.server_address == (host, port)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"bert_train_loss 1.5" in answer.read()


def test_an_address_of_another_machine_is_named():
    with refused(ConfigError, key="tracking.prometheus_port"):
        Exporter("192.0.2.1", free_port(), "tracking.prometheus_port")
