"""Builds docker/Dockerfile without a Docker engine: buildah, over a root file system of Debian."""

import json
import os
import subprocess
import sys
from pathlib import Path

BASE = "localhost/debian-python:bookworm"
PYTHON = "python3,python3-venv,ca-certificates"
PIP = ("index-url", "extra-index-url", "find-links", "cert", "trusted-host")


def sh(*words, **options):
    """What a command prints; its last words where it fails."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


class Builder:
    """Images in a store of their own below `folder`."""

    def __init__(self, folder):
        self.folder = folder
        self.variant = ""  # of the trainer: cuda or cpu
        self.mounted: list[str] = []
        store = ("--root", folder / "store", "--runroot", folder / "run")
        self.command = ("buildah", *map(str, store), "--storage-driver", "overlay")

    def buildah(self, *words):
        """What buildah prints."""
        return sh(*self.command, *words)

    def base(self):
        """A root file system from Debian's packages, as an image."""
        tar = self.folder / "base.tar"
        sh("mmdebstrap", "--variant=minbase", f"--include={PYTHON}", "bookworm", tar)
        scratch = self.buildah("from", "scratch").strip()
        self.buildah("add", "--quiet", scratch, tar, "/")
        self.buildah("commit", "--quiet", scratch, BASE)
        self.buildah("rm", scratch)
        tar.unlink()

    def build(self, root, target):
        """Build a target; its name."""
        name = f"bert-pipeline/{target}:0.2.0"
        self.variant = self.variant or variant(root)
        made_of = ["--build-arg", f"VARIANT={self.variant}", "--file", root / "docker" / "Dockerfile"]
        self.buildah("bud", *self.options(), *made_of, "--target", target, "--tag", name, root)
        return name

    def options(self):
        """What a build needs on this machine: its base, its packages, no container engine."""
        configuration, needed = pip_settings()
        (self.folder / "pip.conf").write_text(configuration)
        volumes = [word for path in needed for word in ("--volume", f"{path}:{path}:ro")]
        own = ["--build-arg", f"BASE={BASE}", "--secret", f"id=pip,src={self.folder}/pip.conf", *volumes]
        return ["--isolation", "chroot", "--layers", "--pull-never", *own]

    def inspect(self, name):
        """The OCI image: `config`, `history`."""
        found = json.loads(self.buildah("inspect", "--type", "image", name))
        return dict(found["OCIv1"])

    def mount(self, name):
        """The image's file system."""
        container = self.buildah("from", "--pull-never", name).strip()
        self.mounted.append(container)
        return Path(self.buildah("mount", container).strip())

    def close(self):
        """Let go of all mounts, and of the store."""
        for container in self.mounted:
            self.buildah("umount", container)
            self.buildah("rm", container)
        self.buildah("rmi", "--all", "--force")


def variant(root):
    """The trainer that this machine's package index can make, or the one of the environment.

    PyTorch's wheel without CUDA, 6 GB smaller in all, is on an index of its own.
    """
    if chosen := os.environ.get("VARIANT"):
        return chosen
    lines = (root / "docker" / "requirements-trainer-cpu.txt").read_text().splitlines()
    pin = next(line.split()[0] for line in lines if line.startswith("torch=="))
    words = ("install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet", pin)
    asked = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, check=False)
    return "cpu" if asked.returncode == 0 else "cuda"


def pip_settings():
    """How pip finds packages on this machine: as a pip.conf, and the local paths in it."""
    words = {}
    for line in sh(sys.executable, "-m", "pip", "config", "list").splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name in PIP:
            words.setdefault(name, []).extend(value.strip("'\"").replace("\\n", " ").split())
    lines = [f"{name} = {' '.join(dict.fromkeys(found))}\n" for name, found in words.items()]
    every = [word.removeprefix("file://") for values in words.values() for word in values]
    local = dict.fromkeys(w.removesuffix("/simple") for w in every if w.startswith("/"))
    return "[global]\n" + "".join(lines), [path for path in local if Path(path).exists()]
