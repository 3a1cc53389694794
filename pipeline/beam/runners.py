"""Beam runners for the graph of `prepare`, with their options.

`local` needs only Python. The others submit the graph to a service, whose address is in
`runner.options`, Beam's own pipeline options.
"""

import contextlib
import dataclasses
import difflib
import importlib
import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.beam import beam_patches
from pipeline.beam.fast_import import FnApiRunner, PipelineOptions, SubprocessSDKEnvironment
from pipeline.beam.pool import Pool, environment, secret, serve
from pipeline.common.ports import free_port
from pipeline.config import RunnerConfig
from pipeline.errors import ConfigError
from pipeline.preparation.shuffle import ShuffleLayout

ANSWER = 5.0  # seconds to wait for a service's first response
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
        socket.create_connection((host.strip("[]") or "localhost", int(port)), ANSWER).close()
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ConfigError(
            f"cannot connect ({reason}); start the service, or correct the address", f"runner.options.{key}", address
        ) from error


def check_flink(master: str) -> None:
    """Raise ConfigError unless Flink's REST interface responds."""
    import requests  # slow to import, and of no use to other runners

    place = master if "://" in master else f"http://{master}"
    try:
        answer = requests.get(f"{place}/v1/config", timeout=ANSWER)
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


def find_prism(location: str | None) -> str:
    """Return the Prism binary: at `location`, on PATH, or in the usual folders.

    Raises:
        ConfigError: it is not found.
    """
    for place in [location] if location else [shutil.which("prism"), *map(os.path.expanduser, PRISM)]:
        if place and os.access(place, os.X_OK) and Path(place).is_file():
            return place
    if location:
        raise ConfigError("not an executable file; correct the path", "runner.options.prism_location", location)
    folder = Path(os.path.expanduser(PRISM[0])).parent
    raise ConfigError(
        f"Prism not found; install it with GOBIN={folder} go install {PRISM_PACKAGE}@v2.77.0, "
        "or set runner.options.prism_location",
        "runner",
        "prism",
    )


Engine = tuple[Any, PipelineOptions]
Flags = dict[str, str]  # options of Beam

PORTABLE = ("prism", "flink", "spark")  # behind a job service, see `services`
SERVICES = ("flink", "spark")  # they may have options that Beam's Python lacks
OWN_OPTIONS = ("prism_location",)  # not Beam's

# Module, class, and the extra to install for it.
_SERVICES = {
    "prism": ("apache_beam.runners.portability.portable_runner", "PortableRunner", ""),
    "flink": ("apache_beam.runners.portability.flink_runner", "FlinkRunner", ""),
    "spark": ("apache_beam.runners.portability.spark_runner", "SparkRunner", ""),
    "dataflow": ("apache_beam.runners.dataflow", "DataflowRunner", "apache-beam[gcp]"),
}


@contextlib.contextmanager
def start(runner: RunnerConfig, layout: ShuffleLayout) -> Iterator[Engine]:
    """Yield Beam's runner and its options.

    Raises:
        ConfigError: a dependency is missing, or an option is unknown.
    """
    beam_patches.apply()
    check_options(runner)
    if runner.name == "local":
        yield local(runner)
    elif runner.name == "prism":
        with prism(runner) as engine:
            yield engine
    else:
        check_endpoints(runner)
        if runner.name == "flink":
            runner = in_turns(runner, layout.subtasks)
        if runner.options.get("environment_type") == "LOOPBACK":
            with loopback() as (flags, pool):
                yield service(runner, flags, pool)
        else:
            yield service(runner, {}, None)


def check_options(runner: RunnerConfig) -> None:
    """Raise ConfigError for a key of `runner.options` that the engine does not know.

    A job service may have options of its own: there, only what looks like a typo is refused.
    """
    flags = beam_patches.known_options()
    names = sorted({*flags, *(flag.removeprefix("no_") for flag in flags), *OWN_OPTIONS})
    strict = runner.name not in SERVICES
    for name in sorted(set(runner.options) - set(names)):
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.6 if strict else 0.8)
        if near or strict:
            key = f"runner.options.{name}"
            cure = f"did you mean runner.options.{near[0]}?" if near else "remove it"
            raise ConfigError(f"not an option of Beam; {cure}", key)


def options(runner: RunnerConfig, flags: Flags, **defaults: Any) -> PipelineOptions:
    """Return Beam's options: `defaults`, overridden by the configuration, and that by `flags`."""
    configured = {key: value for key, value in runner.options.items() if value is not None}
    return PipelineOptions.from_dictionary({"save_main_session": False, **defaults, **configured, **flags})


def local(runner: RunnerConfig) -> Engine:
    """Return a runner in this process, or in `workers` processes on this machine."""
    processes = None  # workers are threads of this process
    if runner.workers > 1:
        command = f"exec {shlex.quote(sys.executable)} -m pipeline.beam.worker"
        processes = SubprocessSDKEnvironment.from_command_string(command)
    # DirectRunner may try to download a Go binary first; FnApiRunner is pure Python.
    engine = FnApiRunner(default_environment=processes)
    return engine, options(runner, {}, direct_num_workers=runner.workers)


@contextlib.contextmanager
def loopback() -> Iterator[tuple[Flags, Pool]]:
    """Run a pool of workers in this process, for services on this machine; yield the options that say so too."""
    key = secrets.token_hex(16)
    pool, server, port = serve("localhost:0", key)
    place = environment(f"localhost:{port}", key)
    where = {"environment_type": "EXTERNAL", "environment_config": place}
    try:
        yield where, pool
    finally:
        pool.stop()
        server.stop(0)


@contextlib.contextmanager
def prism(runner: RunnerConfig) -> Iterator[Engine]:
    """Start Prism for this run; it requests its worker from this process.

    Raises:
        ConfigError: Prism is not found, or does not start.
    """
    binary = find_prism(runner.options.get("prism_location"))
    port = free_port()
    process = subprocess.Popen(
        [binary, f"--job_port={port}", "--serve_http=false"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("localhost", port), ANSWER).close()
                break
            if process.poll() is not None or time.monotonic() > until:
                raise ConfigError(
                    "does not start; use a Prism binary of Beam 2.77", "runner.options.prism_location", binary
                )
            time.sleep(0.1)
        with loopback() as (flags, pool):
            yield service(runner, {**flags, "job_endpoint": f"localhost:{port}"}, pool)
    finally:
        process.terminate()
        process.wait()


def in_turns(runner: RunnerConfig, subtasks: int) -> RunnerConfig:
    """Return the configuration of Flink that cuts each phase into subtasks, more than it has slots.

    A subtask holds all that its worker sends until the worker has finished. With blocking
    exchanges, subtasks wait for slots.
    """
    chosen = {key: value for key, value in runner.options.items() if value is not None}
    parallelism = max(subtasks, chosen.get("parallelism", 1))
    options = {"execution_mode_for_batch": "BATCH_FORCED", **chosen, "parallelism": parallelism}
    return dataclasses.replace(runner, options=options)


def service(runner: RunnerConfig, flags: Flags, pool: Pool | None) -> Engine:
    """Return a runner behind a job service: Beam's own, Flink's, Spark's, Google's.

    `flags` are options that differ from the configuration, and `pool` has workers in this process.

    Raises:
        ConfigError: Beam's dependencies for it are not installed.
    """
    module, name, extra = _SERVICES[runner.name]
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        need = f"run pip install '{extra}'" if extra else "reinstall apache-beam"
        raise ConfigError(f"{error}; {need}", "runner", runner.name) from error
    engine = kind()
    engine.lost_worker = pool and pool.lost  # for `services.run`
    place = runner.options.get("environment_config")
    if not flags and place and runner.options.get("environment_type") == "EXTERNAL":
        flags = {"environment_config": environment(str(place), secret())}
    return engine, options(runner, flags, sdk_worker_parallelism=runner.workers)
