"""Import of Apache Beam without its unused dependencies: 0.55 s of CPU instead of 0.9."""

import gc
import importlib
import importlib.util
import logging
import sys
import types
from typing import Any

import pyarrow as pa

# On import, Beam warns about missing optional dependencies.
logging.getLogger().addFilter(lambda record: "apitools not found" not in record.getMessage())
logging.getLogger("apache_beam.io.mongodbio").setLevel(logging.ERROR)


class _Later(types.ModuleType):
    """A module that is imported when something in it is used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:  # asked for while Beam is imported
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


# Beam imports these if installed, for its data frames, MongoDB and stores; our readers have clients
# of their own. That of Google's is used by Dataflow, whose extra brings apitools.
_UNUSED = ["pandas", "pymongo", "bson", "boto3", "botocore", "azure"]
# Beam requires HTTP clients on import, and uses them on Google's cloud alone; the client of its
# storage uses them at once.
_LATER = ["httplib2", "requests"]
if importlib.util.find_spec("apitools") is None:
    _UNUSED += ["google.cloud.storage"]
else:
    _LATER = []


class _Hidden:
    """A finder that finds no unused module, so that who asks continues without it."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name in _UNUSED:
            raise ModuleNotFoundError(f"{name} is not used")  # with `name`, `from` would end in another error


_modules: dict[str, Any] = sys.modules
_later = [name for name in _LATER if name not in _modules]
_modules.update({name: _Later(name) for name in _later})
sys.meta_path.insert(0, _Hidden)
gc.disable()  # objects created on import are not garbage
try:
    pa.array([""])  # pyarrow imports pandas for its first array, or never
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.portability import python_urns
    from apache_beam.portability.api import beam_fn_api_pb2 as fn_messages
    from apache_beam.portability.api import beam_fn_api_pb2_grpc as fn_services
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner, worker_handlers
    from apache_beam.transforms.environments import SubprocessSDKEnvironment
finally:
    sys.meta_path.remove(_Hidden)
    for _name in _later:
        if isinstance(_modules[_name], _Later):
            del _modules[_name]
    gc.freeze()
    gc.enable()
