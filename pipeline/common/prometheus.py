"""Metrics for Prometheus, served over HTTP while a command runs."""

from typing import Any

from pipeline.errors import ConfigError

PREFIX = "bert_"


class Exporter:
    """Gauges at `http://HOST:PORT/metrics`; without a port every method is a no-op."""

    def __init__(self, host: str, port: int | None, key: str):
        """Serve on `port` of the address `host`; `key` is the option that sets the port.

        Raises:
            ConfigError: the client library is not installed, or the port is in use.
        """
        self._gauges: dict[str, Any] = {}
        self._server: Any = None
        if port is None:
            return
        try:
            import prometheus_client
        except ModuleNotFoundError as error:
            raise ConfigError("client library not found; pip install -e '.[prometheus]'", key, port) from error
        self._registry = prometheus_client.CollectorRegistry()
        try:
            self._server, _ = prometheus_client.start_http_server(port, host, self._registry)
        except OSError as error:
            raise ConfigError(f"{error.strerror} ({host})", key, port) from error

    def set(self, name: str, value: float, help_text: str = "", **labels: str) -> None:
        """Set a gauge for one combination of labels."""
        if self._server is None:
            return
        import prometheus_client

        if name not in self._gauges:
            self._gauges[name] = prometheus_client.Gauge(
                PREFIX + name, help_text or name.replace("_", " "), list(labels), registry=self._registry
            )
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
