"""The objects of an overlay, as kustomize makes them."""

import shutil
import subprocess

import pytest
import yaml

from tests.k8s.control_plane import KUBECTL


def kustomize(folder):
    """Return what kustomize makes of a folder."""
    kubectl = shutil.which("kubectl") or shutil.which(KUBECTL)
    if kubectl is None:
        pytest.skip("kubectl is not on this machine")
    made = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return list(yaml.load_all(made.stdout, yaml.CSafeLoader))  # as safe_load_all, in a tenth of the time


def extended(root, folder, overlay, *components):
    """Return the folder of a copied overlay with more components, before its own."""
    shutil.copytree(root / "k8s", folder / "k8s", symlinks=True)
    path = folder / "k8s" / "overlays" / overlay / "kustomization.yaml"
    settings = yaml.safe_load(path.read_text())
    settings["components"][:0] = [f"../../components/{each}" for each in components]
    path.write_text(yaml.safe_dump(settings))
    return path.parent


def of(items, kind):
    """Return the objects of a kind, by name."""
    return {i["metadata"]["name"]: i for i in items if i["kind"] == kind}
