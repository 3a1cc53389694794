"""`python docker/lock.py`: pin the images' packages with hashes, as in constraints.txt.

Writes requirements-prepare.txt, requirements-trainer-cpu.txt and requirements-trainer-cuda.txt for
Linux on x86-64 and Python 3.11. Nothing is installed.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TRAINING = {  # never imported by `prepare` or the driver
    "torch",
    "deepspeed",
    "safetensors",
    "transformers",
    "scikit-learn",
    "scipy",
    "wandb",
    "matplotlib",
    "threadpoolctl",
}
EXTRAS = ("kubernetes", "prometheus", "filters", "chinese", "readers", "s3", "gcs", "azure")  # in both images


def requirements() -> tuple[list[str], list[str]]:
    """Return pyproject.toml's requirements: (of both images, of the trainer only)."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    known = project["optional-dependencies"]
    asked = [*project["dependencies"], *(r for extra in EXTRAS for r in known.get(extra, []))]
    own = [r for r in asked if re.split(r"[<>=\[]", r)[0] in TRAINING]
    return [r for r in asked if r not in own], own


def resolve(asked: list[str], *options: str) -> list[dict[str, Any]]:
    """Return the packages that pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--dry-run",
                "--ignore-installed",
                "--constraint",
                str(HERE.parent / "constraints.txt"),
                "--report",
                str(report),
                *options,
                *asked,
            ],
            check=True,
            cwd=folder,
        )
        found: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    return found


def locked(found: list[dict[str, Any]]) -> str:
    """Return the requirements with hashes, sorted by name."""
    lines = []
    for item in found:
        metadata = item["metadata"]
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        pin = f"{metadata['name'].lower()}=={metadata['version']}"
        lines.append(f"{pin} --hash=sha256:{digest}\n")
    return "# Made by docker/lock.py.\n" + "".join(sorted(lines))


def main() -> None:
    """Run the command."""
    both, own = requirements()
    plain = ("--isolated",)  # only PyPI, whose torch is built for CUDA
    (HERE / "requirements-prepare.txt").write_text(locked(resolve(both)))
    (HERE / "requirements-trainer-cpu.txt").write_text(locked(resolve([*both, *own])))
    (HERE / "requirements-trainer-cuda.txt").write_text(locked(resolve([*both, *own], *plain)))


if __name__ == "__main__":
    main()
