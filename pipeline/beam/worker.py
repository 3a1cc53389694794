"""A Beam worker process. Beam's own narrates its start-up on the terminal; this one is quiet.

What goes wrong in a task is not lost: its exception travels to the process that planned the graph.
"""

import gc
import importlib
import logging
import sys


def main() -> None:
    """Serve the runner until it has no more work."""
    logging.disable(logging.WARNING)
    importlib.import_module("pipeline.beam.fast_import")  # before Beam imports itself
    from apache_beam.runners.worker import sdk_worker_main

    gc.freeze()  # what was imported stays, and need not be looked at for garbage
    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()
