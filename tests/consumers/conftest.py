"""Folders of ours, and an environment for each program that opens them, kept in ~/.cache/bert-pipeline."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model.huggingface import onnx_export
from tests.model.served_folders import made, of_sentences, pretrained, tuned

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bert-pipeline" / "consumers"
KINDS: dict[str, tuple[str, Callable[..., None], list[str]]] = {  # architecture, maker, parts that are random
    "fill-mask": ("bert", pretrained, []),
    "modern fill-mask": ("modernbert", pretrained, []),
    "feature-extraction": ("bert", of_sentences, ["masked_head", "next_sentence", "pooler"]),
    "text-classification": ("modernbert", tuned("class"), []),
    "token-classification": ("bert", tuned("tag"), []),
}
TEXTS = ["the uber the a b c", "über. the the the the the a b c d e f"]
Runner = Callable[[str, Any], Any]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each kind, with its graphs in fp32 and int8."""
    found = {}
    for kind, (architecture, make, untrained) in KINDS.items():
        folder = made(tmp_path_factory.mktemp("folder"), architecture, make)
        texts = onnx_export.Texts("texts", [([2, *range(5, 20), 3], 17)])
        onnx_export.write(folder, untrained, texts)
        found[kind] = folder
    return found


def fetched(name: str, *packages: str) -> Path:
    """The place of a program's environment, by what is in it."""
    digest = hashlib.sha256(" ".join((sys.version, *packages)).encode()).hexdigest()[:12]
    return CACHE / f"{name}-{digest}"


def python_with(name: str, *packages: str) -> Runner:
    """Run scripts in a Python with `packages`, and ours (PyTorch above all) where they bring no other version."""
    place = fetched(name, *packages)
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        (own,) = place.glob("lib/python*/site-packages")
        (own / "ours.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True, timeout=1800)
        (place / "ready").touch()
    return runner([str(python), "-W", "ignore", "-c"])


def runner(command: list[str]) -> Runner:
    """Run a script with an argument as JSON; its last line is its answer, as JSON."""

    def run(script: str, argument: Any) -> Any:
        offline = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": "", "TOKENIZERS_PARALLELISM": "false"}
        words = [*command, script, json.dumps(argument)]
        done = subprocess.run(words, capture_output=True, text=True, env=offline, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.strip().splitlines()[-1])

    return run
