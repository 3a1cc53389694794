"""`k8s/pretrain.yaml` runs to a table of scores, on a cluster of this machine's own."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from cluster import NAMESPACE, Cluster

from model.training.tracking import read_metrics
from pipeline.reporting.dashboards import SECTIONS

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(2400)]


@pytest.mark.parametrize("words", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_the_server_takes_the_files_as_they_are(
    cluster: Cluster, manifest: dict[str, Any], root: Path, words: tuple[str, ...]
) -> None:
    dry = ("apply", "--dry-run=server", "--validate=strict", *words, "-f")
    said = cluster.kubectl(*dry, str(root / "k8s" / "pretrain.yaml"))
    assert said.count("(server dry run)") == len(said.splitlines()) == len(manifest["items"])
    assert "job.batch/train-512" in said


def test_one_apply_makes_a_table_of_scores(cluster: Cluster, manifest: dict[str, Any]) -> None:
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
    assert {"all-reduce", "links", "clocks", "write", "read", "/dev/shm"} <= measured
    assert story.index("are good") < story.index("vocab")


def test_dashboards_show_what_training_logs(cluster: Cluster) -> None:
    rows = read_metrics(cluster.claim / "sample" / "train")
    logged = {f"{row['kind']}/{key}" for row in rows for key in row}
    shown = {name for panels in SECTIONS.values() for panel in panels() for name in panel.y}
    assert {name for name in shown if name.startswith(("train/", "validation/"))} <= logged
    assert len(shown & logged) > 10


def test_applying_again_makes_nothing_again(cluster: Cluster, manifest: dict[str, Any]) -> None:
    report = cluster.claim / "sample" / "report" / "manifest.json"
    before = report.stat().st_mtime_ns, cluster.job("report")["status"]
    cluster.apply(manifest)
    time.sleep(1)
    assert (report.stat().st_mtime_ns, cluster.job("report")["status"]) == before
    cluster.kubectl("delete", "jobs", "-l", "app.kubernetes.io/part-of=bert-pretrain")
    cluster.apply(manifest)
    cluster.wait(lambda: cluster.is_over("driver"), 300)
    assert cluster.is_over("driver") == "Complete"
    assert "resumed" not in cluster.log("driver").partition("all done")[2]
    assert "startTime" not in cluster.job("report")["status"]
    assert report.stat().st_mtime_ns == before[0]


def test_a_shell_takes_data_in_and_results_out(
    cluster: Cluster, root: Path, tmp_path: Path
) -> None:
    shell = root / "k8s" / "shell.yaml"
    cluster.kubectl("apply", "-f", str(shell))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/shell", "--timeout=300s")
    # What `kubectl cp` runs in it both ways, which this kubelet has no streams for.
    inside = cluster.kubelet.enter(NAMESPACE, "shell", "tar", "cf", "-", "sample/report")
    assert b"report.html" in inside
    (tmp_path / "glue").mkdir()
    (tmp_path / "glue" / "train.tsv").write_text("1\tgood\n")
    packed = subprocess.run(
        ["tar", "cf", "-", "-C", tmp_path, "glue"], check=True, capture_output=True
    ).stdout  # fmt: skip
    words = ("tar", "xmf", "-", "-C", "/data")
    cluster.kubelet.enter(NAMESPACE, "shell", *words, given=packed)
    arrived = cluster.claim / "glue" / "train.tsv"
    assert (arrived.read_text(), arrived.stat().st_uid) == ("1\tgood\n", 1000)
    cluster.kubectl("delete", "-f", str(shell))
