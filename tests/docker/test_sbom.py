"""`make sbom` lists what an image installs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.test_dockerfile import pins


def test_a_bill_of_materials_has_every_package_with_its_hash(root: Path, tmp_path: Path) -> None:
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
