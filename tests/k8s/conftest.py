"""A cluster of this machine's own, and the manifest as a user of it edits it."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.k8s import control_plane
from tests.k8s.cluster import Cluster
from tests.k8s.control_plane import ControlPlane
from tests.k8s.pod_script import this_machine
from tests.k8s.small import Small

NUMBERS = itertools.count()

OVERRIDES = """
+corpus=sample  # one package of it
corpus.options.packages=[sklearn]
workdir=/data/sample
executor.poll=0.2
tasks=[sample_next]
vocab.size=1000
vocab.sample_bytes=1000000
prepare.sequence_length=32
tasks.train_rows=100
tasks.dev_rows=50
train.steps=20
model.hidden=32
model.feed_forward=64
train.batch_size=16
train.micro_batch=8
train.save_every=10
train.evaluate_every=1000
train.log_every=1
train.timeout=10
train.watchdog=8
train.tracking=none
evaluate.epochs=1
"""


def missing():
    """Why pods cannot be made on this machine; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "unshare", "setpriv"):
        if shutil.which(tool) is None:
            return f"{tool} is not on this machine"
    probe = subprocess.run(["unshare", "--net", "--mount", "true"], check=False, capture_output=True, text=True)
    if probe.returncode:
        return f"namespaces cannot be made here: {probe.stderr.strip()}"
    return control_plane.missing()


@pytest.fixture(scope="session")
def has_cluster():
    """Skip where pods cannot be made."""
    why = missing()
    if why:
        pytest.skip(why)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, root, has_cluster):
    """Two nodes whose image is this machine."""
    here = this_machine(root, Path(sys.executable))
    # The last one is that of a changed template: a driver that is being deleted may still make a Job of it.
    images = {f"bert-pipeline/{target}": here for target in ("prepare:0.2.0", "trainer:0.2.0", "trainer:next")}
    made = Cluster(tmp_path_factory.mktemp("cluster"), images)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def manifest(root):
    """`pretrain.yaml` for two small nodes without GPUs, and a part of the sample corpus."""
    text = (root / "k8s" / "pretrain.yaml").read_text()
    manifest = {"items": list(yaml.safe_load_all(text))}
    manifest["items"][0]["data"] |= {"gpus": "0", "overrides": OVERRIDES}
    for item in manifest["items"]:
        if item["kind"] not in ("Job", "CronJob"):
            continue
        job = item["spec"].get("jobTemplate", item)["spec"]
        container = job["template"]["spec"]["containers"][0]
        container["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
        # Both nodes of the check are this busy machine.
        small = {"BERT_OPTIONS": "--seconds 0.1 --share 0", "BERT_PARTS": "2"}
        small |= {"BERT_GPUS": "0"} if item["metadata"]["name"] == "evaluate" else {}
        for variable in container["env"]:
            if variable["name"] in small:
                variable["value"] = small[variable["name"]]
        if item["metadata"]["name"] == "evaluate":
            job |= {"completions": 2, "parallelism": 2}
    return manifest


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    """A control plane with one node."""
    why = control_plane.missing()
    if why:
        pytest.skip(why)
    made = ControlPlane(tmp_path_factory.mktemp("control"), "127.0.0.1")
    try:
        made.start().api().create("nodes", None, {"metadata": {"name": "desk"}})
        yield made
    finally:
        made.stop()


@pytest.fixture
def begin(control, tmp_path, monkeypatch):
    """A namespace of its own, which the client library finds by its kubeconfig."""
    made = []
    count = next(NUMBERS)

    def make(ends):
        control.namespace(f"test-{count}", "privileged")
        made.append(Small(control, f"test-{count}", tmp_path, ends))
        made[0].pods.start()
        return made[0]

    place = str(control.configuration("administrator", "default"))
    monkeypatch.setenv("KUBECONFIG", place)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", place)
    yield make
    for small in made:
        small.stopping.set()
        small.pods.join()
