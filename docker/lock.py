"""`python docker/lock.py`: pin what the images install, with hashes, as constraints.txt has it.

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
TRAINING = {  # what `prepare` and the driver never import
    "torch", "deepspeed", "safetensors", "transformers", "scikit-learn", "scipy", "wandb",
    "matplotlib", "threadpoolctl",
}  # fmt: skip
EXTRAS = ("kubernetes", "prometheus", "filters", "chinese")  # in both images


def requirements() -> tuple[list[str], list[str]]:
    """What pyproject.toml asks for: (for both images, for the trainer besides)."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    known = project["optional-dependencies"]
    asked = [*project["dependencies"], *(r for extra in EXTRAS for r in known.get(extra, []))]
    own = [r for r in asked if re.split(r"[<>=\[]", r)[0] in TRAINING]
    return [r for r in asked if r not in own], own


def resolve(asked: list[str], *options: str) -> list[dict[str, Any]]:
    """What pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
             "--constraint", str(HERE.parent / "constraints.txt"), "--report", str(report),
             *options, *asked],
            check=True, cwd=folder,
        )  # fmt: skip
        found: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    return found


def locked(found: list[dict[str, Any]]) -> str:
    """Requirements with hashes, in order of names."""
    lines = []
    for item in found:
        metadata = item["metadata"]
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        pin = f"{metadata['name'].lower()}=={metadata['version']}"
        lines.append(f"{pin} --hash=sha256:{digest}\n")
    return "# Made by docker/lock.py.\n" + "".join(sorted(lines))


def main() -> None:
    """The command."""
    both, own = requirements()
    plain = ("--isolated",)  # no index but PyPI: its torch is the one for CUDA
    (HERE / "requirements-prepare.txt").write_text(locked(resolve(both)))
    (HERE / "requirements-trainer-cpu.txt").write_text(locked(resolve([*both, *own])))
    (HERE / "requirements-trainer-cuda.txt").write_text(locked(resolve([*both, *own], *plain)))


if __name__ == "__main__":
    main()
