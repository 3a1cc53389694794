"""The engines that can run the Beam graph of `prepare`, and what each has to be told.

`local` and `dask` need nothing but Python. The others hand the graph to a service; how they are
reached stands in `runner.options`, which are Beam's own pipeline options.
"""

import contextlib
import importlib
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from typing import Any

from pipeline.beam.fast_import import (
    FnApiRunner,
    PipelineOptions,
    SubprocessSDKEnvironment,
    worker_handlers,
)
from pipeline.common.errors import ConfigError, first_line
from pipeline.config import RunnerConfig

Engine = tuple[Any, PipelineOptions]

# Beam's classes, and what has to be installed beside Beam itself.
_SERVICES = {
    "portable": ("apache_beam.runners.portability.portable_runner", "PortableRunner", ""),
    "flink": ("apache_beam.runners.portability.flink_runner", "FlinkRunner", ""),
    "spark": ("apache_beam.runners.portability.spark_runner", "SparkRunner", ""),
    "dataflow": ("apache_beam.runners.dataflow", "DataflowRunner", "apache-beam[gcp]"),
}


@contextlib.contextmanager
def start(runner: RunnerConfig, parts: int) -> Iterator[Engine]:
    """Beam's runner and its options, while the body runs; `parts` are the splits of the input.

    Raises:
        ConfigError: something has to be installed, or an option is not known.
    """
    # Beam 2.77 flushes from a second thread after this time and can lose elements in that race.
    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0
    if runner.name == "local":
        yield local(runner)
    elif runner.name == "dask":
        with dask(runner, parts) as engine:
            yield engine
    else:
        if runner.name == "portable":
            check_job_service(str(runner.options.get("job_endpoint")))
        yield service(runner)


def check_job_service(endpoint: str, timeout: float = 10.0) -> None:
    """Check that somebody answers at the address of a job service: Beam would wait for ever.

    Raises:
        ConfigError: nobody does.
    """
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"runner.options.job_endpoint={endpoint}: no job service answers at this HOST:PORT "
            f"({first_line(error)}); start one, or give its address",
            key="runner.options.job_endpoint",
        ) from error


def options(runner: RunnerConfig, **flags: Any) -> PipelineOptions:
    """Beam's options: `flags`, and over them what the configuration says."""
    said = {key: value for key, value in runner.options.items() if value is not None}
    return PipelineOptions.from_dictionary({"save_main_session": False, **flags, **said})


def local(runner: RunnerConfig) -> Engine:
    """In this process, or in `workers` processes of this machine.

    Raises:
        ConfigError: an option that Beam does not know.
    """
    known = PipelineOptions().get_all_options()
    if unknown := sorted(set(runner.options) - set(known)):
        raise ConfigError(f"runner.options.{unknown[0]}: Beam has no such option")
    processes = None  # the workers are threads of this process
    if runner.workers > 1:
        command = f"{shlex.quote(sys.executable)} -m pipeline.beam.worker"
        processes = SubprocessSDKEnvironment.from_command_string(command)
    # Plain DirectRunner may try to fetch a Go binary first; FnApiRunner is Python alone.
    engine = FnApiRunner(default_environment=processes)
    return engine, options(runner, direct_num_workers=runner.workers)


@contextlib.contextmanager
def dask(runner: RunnerConfig, parts: int) -> Iterator[Engine]:
    """On a Dask cluster: the one at `dask_client_address`, else `workers` processes here.

    Raises:
        ConfigError: Dask is not installed, or does not answer at that address.
    """
    # What fails comes out of `run`; the workers read their logging from the environment.
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")
    try:
        import distributed
        from apache_beam.runners.dask.dask_runner import DaskRunner
    except ImportError as error:
        raise ConfigError(f"runner=dask needs Dask ({error}): pip install distributed") from error
    address, cluster = runner.options.get("dask_client_address"), None
    if address is None:
        cluster = distributed.LocalCluster(
            n_workers=runner.workers, threads_per_worker=1, dashboard_address=None
        )
        address = cluster.scheduler_address
    try:
        # Without a number of partitions up to 128 splits would all go to one worker.
        flags = options(runner, dask_client_address=address, dask_npartitions=max(parts, 1))
        yield DaskRunner(), flags
    except OSError as error:
        if cluster is not None or not str(error).startswith("Timed out"):
            raise
        raise ConfigError(f"runner.options.dask_client_address={address}: {error}") from error
    finally:
        with contextlib.suppress(ValueError):  # no client yet
            distributed.default_client().close()
        if cluster is not None:
            cluster.close()


def service(runner: RunnerConfig) -> Engine:
    """Through a job service: Beam's own, Flink's, Spark's, Google's.

    Raises:
        ConfigError: what Beam needs for it is not installed.
    """
    module, name, extra = _SERVICES[runner.name]
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        need = f"pip install '{extra}'" if extra else "install apache-beam whole"
        raise ConfigError(f"runner={runner.name}: {error}; {need}") from error
    return kind(), options(runner, sdk_worker_parallelism=runner.workers)
