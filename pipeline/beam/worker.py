"""Beam worker process; unlike Beam's own, it does not log its start-up to the terminal.

Errors of tasks are not lost: exceptions are sent to the driver.
"""

import gc
import importlib
import logging
import sys
from pathlib import Path

from pipeline.console import output


def main() -> None:
    """Serve the runner until it has no more work."""
    output.outlive_readers()
    logging.disable(logging.WARNING)
    importlib.import_module("pipeline.beam.fast_import")  # before Beam imports itself
    if len(sys.argv) > 1:
        serve_pool(*sys.argv[1:])
        return
    from apache_beam.runners.worker import sdk_worker_main

    gc.freeze()  # imported objects stay: exclude them from garbage collection
    sdk_worker_main.main(sys.argv)


def serve_pool(identity: str, control: str, ready: str) -> None:
    """Serve the engine that requested this worker from a pool, and note that it does; see `pipeline.beam.pool`."""
    logging.disable(logging.CRITICAL)  # the engine gets a task's traceback anyway
    from apache_beam.runners.worker.sdk_worker import SdkHarness

    importlib.import_module("pipeline.beam.steps")
    # As in Beam's pool: no state cache, no second thread that flushes buffers.
    harness = SdkHarness(control, worker_id=identity, state_cache_size=0, data_buffer_time_limit_ms=0)
    Path(ready).write_text("ready")
    harness.run()


if __name__ == "__main__":
    main()
