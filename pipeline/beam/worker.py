"""A Beam worker process. Beam's own narrates its start-up on the terminal; this one is quiet.

What goes wrong in a task is not lost: its exception travels to the process that planned the graph.
"""

import argparse
import gc
import importlib
import logging
import sys
from pathlib import Path


def main() -> None:
    """Serve the runner until it has no more work."""
    logging.disable(logging.WARNING)
    importlib.import_module("pipeline.beam.fast_import")  # before Beam imports itself
    if len(sys.argv) > 1:
        serve_pool()
        return
    from apache_beam.runners.worker import sdk_worker_main

    gc.freeze()  # what was imported stays, and need not be looked at for garbage
    sdk_worker_main.main(sys.argv)


def serve_pool() -> None:
    """Serve the engine that asked a pool for this worker; see `pipeline.beam.pool`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--id", required=True)
    parser.add_argument("--control", required=True)
    parser.add_argument("--ready", type=Path, required=True)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # a trace of a task travels to the engine as well
    from apache_beam.runners.worker.sdk_worker import SdkHarness

    importlib.import_module("pipeline.beam.transforms")
    # As Beam's pool has it: no state is cached, no buffer is flushed by a second thread.
    harness = SdkHarness(
        options.control, worker_id=options.id, state_cache_size=0, data_buffer_time_limit_ms=0
    )
    options.ready.write_text("ready")
    harness.run()


if __name__ == "__main__":
    main()
