"""How many examples a property draws: few in `make test`, all in `make test-all`."""

import os

import pytest

QUICK = 25
WORKERS = [1, pytest.param(2, marks=pytest.mark.slow)]  # processes of a preparation, each with its imports


def examples(full, quick=QUICK):
    """Return the number of examples for the profile that is on."""
    return min(full, quick) if os.environ.get("HYPOTHESIS_PROFILE") == "quick" else full
