"""The objects of an overlay, as kustomize makes them."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

Object = dict[str, Any]


def kustomize(folder: Path) -> list[Object]:
    """Return what kustomize makes of a folder."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on this machine")
    made = subprocess.run(
        ["kubectl", "kustomize", folder], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return list(yaml.safe_load_all(made.stdout))


def of(items: list[Object], kind: str) -> dict[str, Object]:
    """Return the objects of a kind, by name."""
    return {i["metadata"]["name"]: i for i in items if i["kind"] == kind}
