"""The door to Apache Beam: imported without what nothing here needs, in half the time."""

import gc
import logging
import sys
from typing import Any

# Beam imports these where they are installed, for its data frames, a database and S3.
_UNUSED = ("pandas", "pymongo", "bson", "boto3", "botocore")

# It warns, on import, of what it does without.
logging.getLogger().addFilter(lambda record: "apitools not found" not in record.getMessage())
logging.getLogger("apache_beam.io.mongodbio").setLevel(logging.ERROR)

_modules: dict[str, Any] = sys.modules
_hidden = [name for name in _UNUSED if name not in _modules]
_modules.update(dict.fromkeys(_hidden))  # None: importing it fails, and Beam goes on without
gc.disable()  # nothing that a module makes is garbage soon
try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner, worker_handlers
    from apache_beam.transforms.environments import SubprocessSDKEnvironment
finally:
    for _name in _hidden:
        del _modules[_name]
    gc.freeze()
    gc.enable()

__all__ = ["FnApiRunner", "PipelineOptions", "SubprocessSDKEnvironment", "beam", "worker_handlers"]
