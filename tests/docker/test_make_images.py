"""`make images` builds and pushes what is to be published, with any builder."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipeline import __version__
from tests.docker.test_dockerfile import pins

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
        assert done.stdout.split()[-1] == fails
        assert done.stdout.split().count(fails) == 1


def test_a_registry_has_to_be_named(root):
    done = make(root, "BUILDER=echo")
    assert done.returncode != 0
    assert "REGISTRY=" in done.stdout
    assert "push" not in done.stdout


def test_the_workflow_publishes_the_same_images(root):
    flow = yaml.safe_load((root / ".github" / "workflows" / "images.yml").read_text())
    job = flow["jobs"]["publish"]
    (build,) = [each["with"] for each in job["steps"] if each.get("id") == "build"]
    assert job["strategy"]["matrix"]["target"] == BUILT
    assert (build["context"], build["file"], build["push"]) == (".", "docker/Dockerfile", True)
    text = (root / "docker" / "Dockerfile").read_text()
    assert all(f" AS {target}\n" in text for target in BUILT)


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
