"""`k8s/pretrain.yaml` runs to a table of scores, on a cluster of this machine's own."""

import json
import subprocess
import time

import pytest

from pipeline.reporting.dashboards import SECTIONS
from tests.k8s.cluster import NAMESPACE
from tests.support.servers.wandb_server import KEY, WandbServer

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(2400)]

TRACKED = "train.tracking=wandb\ntrain.tracking.mode=online\nreport.tracking=wandb\n"


@pytest.fixture(scope="module")
def wandb(cluster):
    """W&B's interface where pods reach it, with its address and key as a user sets them."""
    server = WandbServer(cluster.network.address)
    cluster.kubectl("create", "configmap", "pretrain-env", f"--from-literal=WANDB_BASE_URL={server.url}")
    cluster.kubectl("create", "secret", "generic", "wandb", f"--from-literal=key={KEY}")
    yield server
    server.stop()


@pytest.fixture
def manifest(manifest, wandb):
    """The manifest, with W&B on."""
    manifest["items"][0]["data"]["overrides"] += TRACKED
    key = {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}}}
    for item in manifest["items"]:  # as the component `report-key`
        if item["metadata"]["name"] == "light":
            item["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["env"].append(key)
    return manifest


@pytest.mark.parametrize("words", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_the_server_takes_the_files_as_they_are(cluster, manifest, root, words):
    dry = ("apply", "--dry-run=server", "--validate=strict", *words, "-f")
    said = cluster.kubectl(*dry, str(root / "k8s" / "pretrain.yaml"))
    assert said.count("(server dry run)") == len(said.splitlines()) == len(manifest["items"])
    assert "cronjob.batch/train" in said


def test_one_apply_makes_a_table_of_scores(cluster, manifest):
    manifest["items"][0]["data"]["overrides"] += "executor.preflight=true\n"
    cluster.apply(manifest)
    cluster.wait(lambda: cluster.is_over("driver"), 600)
    story = cluster.log("driver")
    assert cluster.is_over("driver") == "Complete", story
    work = cluster.claim / "sample"
    results = json.loads((work / "evaluate-sample_next" / "results.json").read_text())
    assert f"Sample-Next (sample task) accuracy {results['score']:.3f}" in story
    assert "Sample-Next" in (work / "report" / "report.html").read_text()
    status = cluster.job("train")["status"]
    assert (status["succeeded"], status.get("failed", 0)) == (2, 0)
    assert "2 x cpu" in cluster.log("train")
    said = cluster.log("preflight").splitlines()
    measured = {line.split()[1] for line in said if line.startswith("ok ")}
    assert measured == {"compute", "all-reduce"}
    assert story.index("are good") < story.index("vocab         made of template prepare")


def test_dashboards_show_what_is_logged(wandb):
    logged = {key for run in wandb.runs for row in wandb.history(run) for key in row}
    shown = {name for panels in SECTIONS.values() for panel in panels for name in panel.get("y", [])}
    assert {name for name in shown if name.startswith(("train/", "validation/"))} <= logged
    assert len(shown & logged) > 10


def test_applying_again_makes_nothing_again(cluster, manifest, wandb):
    logged = len(wandb.asked)
    report = cluster.claim / "sample" / "report" / "manifest.json"
    before = report.stat().st_mtime_ns, cluster.job("report")["status"]
    cluster.apply(manifest)
    time.sleep(1)
    assert (report.stat().st_mtime_ns, cluster.job("report")["status"]) == before
    cluster.kubectl("delete", "job", "driver")
    cluster.wait(lambda: not cluster.api.find("jobs", NAMESPACE), 120)
    cluster.apply(manifest)
    cluster.wait(lambda: cluster.is_over("driver"), 300)
    assert cluster.is_over("driver") == "Complete"
    assert [job["metadata"]["name"] for job in cluster.api.find("jobs", NAMESPACE)] == ["driver"]
    assert report.stat().st_mtime_ns == before[0]
    assert len(wandb.asked) == logged


def test_a_shell_takes_data_in_and_results_out(cluster, root, tmp_path):
    shell = root / "k8s" / "components" / "shell" / "shell.yaml"
    cluster.kubectl("apply", "-f", str(shell))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/shell", "--timeout=300s")
    # What `kubectl cp` runs in it both ways, which this kubelet has no streams for.
    inside = cluster.kubelet.enter(NAMESPACE, "shell", "tar", "cf", "-", "sample/report")
    assert b"report.html" in inside
    (tmp_path / "glue").mkdir()
    (tmp_path / "glue" / "train.tsv").write_text("1\tgood\n")
    packed = subprocess.run(["tar", "cf", "-", "-C", tmp_path, "glue"], check=True, capture_output=True).stdout
    words = ("tar", "xmf", "-", "-C", "/data")
    cluster.kubelet.enter(NAMESPACE, "shell", *words, given=packed)
    arrived = cluster.claim / "glue" / "train.tsv"
    assert (arrived.read_text(), arrived.stat().st_uid) == ("1\tgood\n", 1000)
    cluster.kubectl("delete", "-f", str(shell))
