"""Folders of ours, and an environment for each program that opens them, kept in ~/.cache/bert-pipeline."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import transformers

from model.huggingface import onnx_export
from tests.model.served_folders import made, of_sentences, pretrained, tuned

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bert-pipeline" / "consumers"
KINDS = {  # architecture, maker, parts that are random
    "fill-mask": ("bert", pretrained, []),
    "modern fill-mask": ("modernbert", pretrained, []),
    "RoBERTa fill-mask": ("roberta", pretrained, []),
    "XLM-R fill-mask": ("xlm-roberta", pretrained, []),
    "XLM-R sentences": ("xlm-roberta", of_sentences, ["masked_head"]),
    "RoBERTa text-classification": ("roberta", tuned("class"), []),
    "feature-extraction": ("bert", of_sentences, ["masked_head", "next_sentence", "pooler"]),
    "text-classification": ("modernbert", tuned("class"), []),
    "several labels": ("bert", tuned("class", several=True), []),
    "scores": ("own bert", tuned("class", 1, scale=(3.0, 2.0)), []),
    "token-classification": ("bert", tuned("tag"), []),
    "question-answering": ("own bert", tuned("answer"), []),
}
CLASSES = {  # transformers' heads of a folder
    **{key: ["ForFeatureExtraction", "ForMaskedLM"] for key in KINDS if key.endswith("fill-mask")},
    **{key: ["ForFeatureExtraction"] for key in ("feature-extraction", "XLM-R sentences")},
    **{key: ["ForSequenceClassification"] for key in ("text-classification", "RoBERTa text-classification")},
    "token-classification": ["ForTokenClassification"],
}
TEXTS = ["the uber the a b c", "über. the the the the the a b c d e f"]
PAGE = Path(__file__).parents[2] / "docs" / "works-with.md"
CELLS = ("tool", "version", "works", "differs")  # of the page's table, the names of properties of tests


def pytest_runtest_setup(item):
    """Note the program of a test, also of one that is skipped or fails."""
    if marker := item.get_closest_marker("tool"):
        item.user_properties += list(zip(CELLS, marker.args, strict=False))


def pytest_terminal_summary(terminalreporter):
    """Write the rows of programs whose tests ran into the page's table; other rows stay."""
    if not os.environ.get("SUITE"):
        return
    head, *lines = PAGE.read_text().split("|---|---|---|---|\n")
    rows = {line.split(" | ")[0][2:]: line for line in lines[0].splitlines()}
    found = {}  # cells by program and column, in their order
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            said = list(report.user_properties)
            if outcome == "skipped":
                said.append(("differs", f"not tried: {report.longrepr[2].removeprefix('Skipped: ')}"))
            elif outcome != "passed":
                said.append(("differs", f"**fails**: `{report.nodeid.rpartition('::')[2]}`"))
            cells = found.setdefault(dict(said).get("tool", ""), {name: {} for name in CELLS})
            for name, value in said:
                cells[name][value] = None
    found.pop("", None)  # tests of no program
    for tool, by_name in found.items():
        rows[tool] = f"| {' | '.join('; '.join(by_name[name]) for name in CELLS)} |"
    table = "\n".join(row for _, row in sorted(rows.items(), key=lambda row: row[0].lower()))
    PAGE.write_text(f"{head}|---|---|---|---|\n{table}\n")


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A folder of each kind, with its graphs in fp32 and int8."""
    found = {}
    for kind, (architecture, make, untrained) in KINDS.items():
        folder = made(tmp_path_factory.mktemp("folder"), architecture, make)
        texts = onnx_export.Texts("texts", [([2, *range(5, 20), 3], 17)])
        onnx_export.write(folder, untrained, texts)
        found[kind] = folder
    return found


def environment(name, *parts, make):
    """The folder of a program, which `make` fills if it is not there, by what is in it."""
    digest = hashlib.sha256(" ".join((sys.version, *parts)).encode()).hexdigest()[:12]
    place = CACHE / f"{name}-{digest}"
    if not (place / "ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        make(place)
        (place / "ready").touch()
    return place


def python_with(name, *packages):
    """Run scripts in a Python with `packages`, and ours (PyTorch above all) where they bring no other version."""

    def make(place):
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        (own,) = place.glob("lib/python*/site-packages")
        (own / "ours.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        command = [place / "bin" / "python", "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(command, check=True, timeout=1800)

    return runner([str(environment(name, *packages, make=make) / "bin" / "python"), "-W", "ignore", "-c"])


def node_with(name, *packages):
    """Run scripts in Node with `packages`."""
    need("npm")

    def make(place):  # what their scripts fetch is for graphics cards
        flags = ["--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(["npm", "install", "--prefix", str(place), *flags, *packages], check=True, timeout=1800)

    place = environment(name, *packages, make=make)
    return runner(["sh", "-c", f'cd {place} && exec node --input-type=module -e "$0" "$1"'])


def need(tool):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not on this machine")


def runner(command):
    """Run a script with an argument as JSON; its last line is its answer, as JSON."""

    def run(script, argument):
        offline = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": "", "TOKENIZERS_PARALLELISM": "false"}
        words = [*command, script, json.dumps(argument)]
        done = subprocess.run(words, capture_output=True, text=True, env=offline, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.strip().splitlines()[-1])

    return run


def outputs(folder, *texts):
    """What our graph gives for texts or pairs, and their `mask`."""
    given = transformers.AutoTokenizer.from_pretrained(folder)(*texts, padding=True, return_tensors="pt")
    return onnx_export.Session(folder / onnx_export.MODEL).run(dict(given)) | {"mask": given["attention_mask"].numpy()}
