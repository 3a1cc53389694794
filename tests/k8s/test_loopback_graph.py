"""`k8s/pretrain.yaml` runs to a table of scores, on a cluster of this machine's own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from loopback import Cluster
from loopback_script import this_machine

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(600)]

SMALL = """
+corpus=sample
corpus.options.packages=[sklearn]
workdir=/data/sample
executor.poll=0.5
tasks=[sample_next,sample_passage]
++recipe.stages.vocab.size=1000
++recipe.stages.vocab.sample_bytes=1000000
++recipe.stages.tasks.train_rows=200
++recipe.stages.tasks.dev_rows=50
++recipe.stages.train.steps=20
++recipe.stages.train.batch_size=16
++recipe.stages.train.micro_batch=8
++recipe.stages.train.save_every=5
++recipe.stages.train.evaluate_every=20
++recipe.stages.train.log_every=1
++recipe.stages.train.tracking=none
++recipe.stages.evaluate.epochs=1
"""


@pytest.fixture
def cluster(tmp_path: Path, root: Path) -> Iterator[Cluster]:
    """Two nodes whose image is this machine."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    for tool in ("kubectl", "ip", "unshare", "setpriv"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this machine")
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "true"], check=False, capture_output=True
    )
    if probe.returncode:
        pytest.skip(f"namespaces cannot be made here: {probe.stderr.decode().strip()}")
    here = this_machine(root, Path(sys.executable))
    images = {f"bert-pipeline/{target}:0.1.0": here for target in ("prepare", "trainer")}
    made = Cluster(tmp_path, images)
    try:
        yield made.start()
    finally:
        made.stop()


def edited(root: Path, overrides: str = SMALL) -> str:
    """`pretrain.yaml` as a user edits its top: no GPU, and the sample corpus."""
    manifest: dict[str, Any] = yaml.safe_load((root / "k8s" / "pretrain.yaml").read_text())
    settings = manifest["items"][0]["data"]
    settings |= {"gpus": "0", "overrides": overrides}
    return json.dumps(manifest)


def apply(cluster: Cluster, manifest: str) -> str:
    path = cluster.folder / "pretrain.json"
    path.write_text(manifest)
    return cluster.kubectl("apply", "-f", str(path))


def test_one_apply_makes_a_table_of_scores(cluster: Cluster, root: Path) -> None:
    apply(cluster, edited(root))
    cluster.wait(lambda: cluster.is_over("driver"), 300)
    story = cluster.log("driver")
    print(cluster.kubectl("get", "jobs"), story)
    assert cluster.is_over("driver") == "Complete", story
