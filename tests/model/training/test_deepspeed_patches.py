"""What is patched of DeepSpeed is one version, and nothing outside of one file is patched."""

import ast
import tomllib
from datetime import timedelta

import deepspeed
import pytest
from torch.distributed import distributed_c10d

from model.config import TrainConfig
from model.distributed import rank_card
from model.training import deepspeed_patches, engine
from pipeline.errors import Exit, InputError

PATCHES = "model/training/deepspeed_patches.py"


@pytest.mark.parametrize("version", ["0.19.7", "0.19.9", "0.20.0"])
def test_another_version_is_refused_at_the_start(version, monkeypatch):
    monkeypatch.setattr(deepspeed, "__version__", version)
    with pytest.raises(InputError) as raised:
        engine.start_world(rank_card.describe(TrainConfig(out="out"), ""), 1)
    assert raised.value.code == Exit.USER
    assert f"pip install deepspeed=={deepspeed_patches.VERSION}" in str(raised.value)


def test_the_version_is_the_one_that_is_installed_with_the_project(root):
    deepspeed_patches.require_version()
    wanted = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    major, minor, patch = deepspeed_patches.VERSION.split(".")
    end = f"{major}.{minor}.{int(patch) + 1}"
    assert f"deepspeed>={deepspeed_patches.VERSION},<{end}" in wanted


def test_a_group_without_a_timeout_has_that_of_the_training(monkeypatch):
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        monkeypatch.setattr(distributed_c10d, name, None)
    deepspeed_patches.before_start(timedelta(seconds=7), on_gpus=False)
    for backend in ("gloo", "nccl"):
        found = distributed_c10d._get_default_timeout(distributed_c10d.Backend(backend))
        assert found == timedelta(seconds=7)


def test_one_file_replaces_attributes_of_wrappers_and_libraries(root):
    """An assignment to a private or a library's attribute is a patch."""
    found = set()
    for path in (root / "model").rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            for target in node.targets if isinstance(node, ast.Assign) else ():
                if isinstance(target, ast.Attribute | ast.Subscript):
                    owner = ast.unparse(target).partition(".")[0].partition("[")[0]
                    if owner in {"deepspeed", "distributed_c10d", "wrapper", "room", "dist"}:
                        found.add(path.relative_to(root).as_posix())
    assert found == {PATCHES}
