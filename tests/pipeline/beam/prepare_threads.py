"""`python -m pipeline.prepare` with as many threads of one SDK process as `THREADS` says."""

import os

from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import EmbeddedPythonGrpcEnvironment

from pipeline import prepare
from pipeline.beam import runners


def threaded(runner):
    """Run each worker as a thread, as the SDK processes of Flink, Spark and Dataflow do."""
    engine = FnApiRunner(default_environment=EmbeddedPythonGrpcEnvironment())
    return engine, runners.options(runner, {}, direct_num_workers=int(os.environ["THREADS"]))


runners.local = threaded
prepare.main()
