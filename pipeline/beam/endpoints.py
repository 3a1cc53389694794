"""Checks that a runner's services and programs are available, within seconds, before planning."""

import os
import re
import shutil
import socket
from pathlib import Path

from pipeline.common.errors import ConfigError
from pipeline.config import RunnerConfig

PATIENCE = 5.0  # seconds to wait for a service's first response
LOCAL = ("[local]", "[auto]")  # Flink within the job server
# Written by `go install` with GOBIN, and by Beam itself.
PRISM = ("~/.cache/bert-pipeline/engines/bin/prism", "~/.apache_beam/cache/prism/bin/prism")
PRISM_PACKAGE = "github.com/apache/beam/sdks/v2/go/cmd/prism"


def check_endpoints(runner: RunnerConfig) -> None:
    """Check every service, jar and program that the runner's options name.

    Raises:
        ConfigError: a service does not respond, or a jar or Java is missing.
    """
    options = runner.options
    endpoint = options.get("job_endpoint")
    if endpoint and endpoint != "embed":
        check_port("job_endpoint", str(endpoint))
    master = str(options.get("flink_master") or "")
    if runner.name == "flink" and not endpoint:
        if master not in LOCAL:
            check_flink(master)
        if master in LOCAL or not options.get("flink_submit_uber_jar"):
            check_java("a job server for Flink")
    if runner.name == "spark" and not endpoint:
        check_java("a job server for Spark")
        for address in re.findall(r"[\w.-]+:\d+", str(options.get("spark_master_url") or "")):
            check_port("spark_master_url", address)
    for key in ("flink_job_server_jar", "spark_job_server_jar"):
        place = options.get(key)
        if place and "://" not in place and not Path(place).is_file():
            raise ConfigError("file not found; build it (see docs/runners.md)", f"runner.options.{key}", place)


def check_port(key: str, address: str) -> None:
    """Raise ConfigError unless a service accepts connections at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        if not port.isdigit():
            raise OSError("must be HOST:PORT")
        socket.create_connection((host.strip("[]") or "localhost", int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot connect ({reason(error)}); start the service, or correct the address",
            f"runner.options.{key}",
            address,
        ) from error


def listens(host: str, port: int) -> bool:
    """Return whether a service accepts connections at this address."""
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except OSError:
        return False
    return True


def check_flink(master: str) -> None:
    """Raise ConfigError unless Flink's REST interface responds."""
    import requests  # slow to import, and of no use to other runners

    place = master if "://" in master else f"http://{master}"
    try:
        answer = requests.get(f"{place}/v1/config", timeout=PATIENCE)
        answer.raise_for_status()
        answer.json()["flink-version"]
    except (requests.RequestException, KeyError, ValueError) as error:
        cause = "not Flink's REST interface"
        if isinstance(error, requests.ConnectionError | requests.Timeout):
            cause = "cannot connect"
        raise ConfigError(
            f"{cause}; set it to HOST:PORT of the job manager's REST interface", "runner.options.flink_master", master
        ) from error


def check_java(purpose: str) -> None:
    """Raise ConfigError unless `java` is on PATH."""
    if shutil.which("java") is None:
        raise ConfigError(f"{purpose} requires Java, but `java` is not on PATH; install it", "runner")


def reason(error: BaseException) -> str:
    """Return the system's error message for an address."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


def find_prism(location: str | None) -> str:
    """Return the Prism binary: at `location`, on PATH, or in the usual folders.

    Raises:
        ConfigError: it is not found.
    """
    if location:
        if os.access(location, os.X_OK) and Path(location).is_file():
            return location
        raise ConfigError("not an executable file; correct the path", "runner.options.prism_location", location)
    places = [shutil.which("prism"), *(os.path.expanduser(place) for place in PRISM)]
    for place in places:
        if place and os.access(place, os.X_OK):
            return place
    folder = Path(os.path.expanduser(PRISM[0])).parent
    raise ConfigError(
        f"Prism not found; install it with GOBIN={folder} go install {PRISM_PACKAGE}@v2.77.0, "
        "or set runner.options.prism_location",
        "runner",
        "prism",
    )
