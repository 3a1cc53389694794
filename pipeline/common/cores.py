"""How many processor cores this process may use."""

import os


def available() -> int:
    """Return the cores that the system, or Slurm, leaves to this process; not the machine's."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    # Slurm without a task plugin gives a job a number of cores, and hides none of the others.
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return min(cores, int(given)) if given.isdecimal() and int(given) else cores
