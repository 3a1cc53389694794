"""See that what a runner needs is there, before a job is planned: within seconds, in one line."""

import os
import re
import shutil
import socket
from pathlib import Path

import requests

from pipeline.common.errors import ConfigError
from pipeline.config import RunnerConfig

PATIENCE = 5.0  # seconds that a service has for its first answer
LOCAL = ("[local]", "[auto]")  # Flink within the job server
# Where `go install` with GOBIN, and Beam itself, leave it.
PRISM = ("~/.cache/bert-pipeline/engines/bin/prism", "~/.apache_beam/cache/prism/bin/prism")
PRISM_PACKAGE = "github.com/apache/beam/sdks/v2/go/cmd/prism"


def check_endpoints(runner: RunnerConfig) -> None:
    """Raise unless everything that the runner's options name answers.

    Raises:
        ConfigError: a service does not answer, a jar is not there, or Java is missing.
    """
    options = runner.options
    endpoint = options.get("job_endpoint")
    if runner.name == "portable" and not endpoint:
        raise ConfigError(
            "runner.options.job_endpoint: no value; HOST:PORT of a job service",
            key="runner.options.job_endpoint",
        )
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
            raise ConfigError(
                f"runner.options.{key}={place}: no such file; docs/runners.md says how it is made",
                key=f"runner.options.{key}",
                path=place,
            )


def check_port(key: str, address: str) -> None:
    """Raise unless something takes a connection at HOST:PORT.

    Raises:
        ConfigError: nothing does.
    """
    host, _, port = address.rpartition(":")
    try:
        if not port.isdigit():
            raise OSError("write it as HOST:PORT")
        socket.create_connection((host.strip("[]") or "localhost", int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"runner.options.{key}={address}: nothing answers there ({reason(error)}); start the "
            "service, or correct the address",
            key=f"runner.options.{key}",
        ) from error


def listens(host: str, port: int) -> bool:
    """Whether something takes a connection there."""
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except OSError:
        return False
    return True


def check_flink(master: str) -> None:
    """Raise unless Flink's REST interface answers.

    Raises:
        ConfigError: it does not.
    """
    place = master if "://" in master else f"http://{master}"
    try:
        answer = requests.get(f"{place}/v1/config", timeout=PATIENCE)
        answer.raise_for_status()
        answer.json()["flink-version"]
    except (requests.RequestException, KeyError, ValueError) as error:
        cause = "not Flink's REST interface"
        if isinstance(error, requests.ConnectionError | requests.Timeout):
            cause = "nothing answers there"
        raise ConfigError(
            f"runner.options.flink_master={master}: {cause}; give HOST:PORT of the job "
            "manager's REST interface",
            key="runner.options.flink_master",
        ) from error


def check_java(purpose: str) -> None:
    """Raise unless there is a Java.

    Raises:
        ConfigError: there is none on PATH.
    """
    if shutil.which("java") is None:
        raise ConfigError(f"runner: {purpose} needs Java, and there is no `java` on PATH")


def reason(error: BaseException) -> str:
    """What the system says of an address, in a few words."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


def find_prism(location: str | None) -> str:
    """The Prism binary: at `location`, on PATH, or where it is usually left.

    Raises:
        ConfigError: it is not there.
    """
    if location:
        if os.access(location, os.X_OK) and Path(location).is_file():
            return location
        raise ConfigError(
            f"runner.options.prism_location={location}: no program there",
            key="runner.options.prism_location",
            path=location,
        )
    places = [shutil.which("prism"), *(os.path.expanduser(place) for place in PRISM)]
    for place in places:
        if place and os.access(place, os.X_OK):
            return place
    folder = Path(os.path.expanduser(PRISM[0])).parent
    raise ConfigError(
        "runner=prism: there is no Prism on this machine; get it with "
        f"GOBIN={folder} go install {PRISM_PACKAGE}@v2.77.0, or name a binary with "
        "runner.options.prism_location",
        key="runner.options.prism_location",
    )
