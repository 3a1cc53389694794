"""`k8s/pretrain.yaml` runs to a table of scores, on a cluster of this machine's own."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from loopback import Cluster

from deploy.dashboards import SECTIONS
from model.training.tracking import read_metrics

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(900)]


def test_kubectl_reads_the_file_as_it_is(
    cluster: Cluster, manifest: dict[str, Any], root: Path
) -> None:
    said = cluster.kubectl("apply", "--dry-run=client", "-f", str(root / "k8s" / "pretrain.yaml"))
    assert said.count("(dry run)") == len(said.splitlines()) == len(manifest["items"])
    assert "job.batch/train-512 created" in said


def test_one_apply_makes_a_table_of_scores(cluster: Cluster, manifest: dict[str, Any]) -> None:
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


def test_dashboards_show_what_training_logs(cluster: Cluster) -> None:
    rows = read_metrics(cluster.claim / "sample" / "train")
    logged = {f"{row['kind']}/{key}" for row in rows for key in row}
    shown = {name for panels in SECTIONS.values() for panel in panels() for name in panel.y}
    assert shown - {"Step"} <= logged


def test_applying_again_makes_nothing_again(cluster: Cluster, manifest: dict[str, Any]) -> None:
    report = cluster.claim / "sample" / "report" / "manifest.json"
    before = report.stat().st_mtime_ns, cluster.job("report")["status"]
    cluster.apply(manifest)
    time.sleep(1)
    assert (report.stat().st_mtime_ns, cluster.job("report")["status"]) == before
    cluster.kubectl("delete", "jobs", "-l", "app.kubernetes.io/part-of=bert-pretrain")
    cluster.apply(manifest)
    cluster.wait(lambda: cluster.is_over("driver"), 120)
    assert cluster.is_over("driver") == "Complete"
    assert "resumed" not in cluster.log("driver").partition("all done")[2]
    assert "startTime" not in cluster.job("report")["status"]
    assert report.stat().st_mtime_ns == before[0]
