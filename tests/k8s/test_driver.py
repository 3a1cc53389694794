"""The driver against a real control plane; pods end as each test says."""

import dataclasses
import json
import threading
from collections.abc import Callable
from pathlib import Path

import control_plane
import pytest
import requests
import yaml
from kubelet import now
from small import Begin, Driver, Small, admission, quota

from pipeline.common.errors import ConfigError, InputError, Restart, UserError
from pipeline.orchestration import kubernetes
from pipeline.orchestration.local import StageFailed

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(300)]

QUEUE = "kueue.x-k8s.io/queue-name"


def test_jobs_are_resumed_when_their_inputs_are_done(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    small = begin(lambda job: (0, ""))
    for name in ("c", "b", "a"):
        small.declare(name)
    small.drive(small.node("a"), small.node("b", "a"), small.node("c", "a", "b"))
    assert small.order == ["a", "b", "c"]
    assert "c made" in capsys.readouterr().out


def test_bad_configuration_is_reported_in_its_own_words(begin: Begin) -> None:
    small = begin(lambda job: (2, "trace\n" + json.dumps(ConfigError("at least 1", "steps", 0).record())))
    small.declare("train")
    small.declare("convert")
    with pytest.raises(UserError, match=r"train.*steps=0"):
        small.drive(small.node("train"), small.node("convert", "train"))
    assert small.order == ["train"]


def test_a_fault_is_reported_with_the_jobs_reason(begin: Begin) -> None:
    small = begin(lambda job: (9, "out of luck"))
    small.declare("train")
    with pytest.raises(StageFailed, match="BackoffLimitExceeded"):
        small.drive(small.node("train"))


def test_a_stage_without_a_job_is_named_before_anything_runs(begin: Begin) -> None:
    small = begin(lambda job: (0, ""))
    small.declare("a")
    with pytest.raises(ConfigError, match=rf"{small.namespace}.*\bb\b"):
        small.drive(small.node("a"), small.node("b", "a"))
    assert small.order == []


def test_a_server_that_stays_away_asks_for_a_restart(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small = begin(lambda job: (0, ""))
    away = tmp_path / "away"
    port = control_plane.free_port("127.0.0.1")
    text = small.control.administrator.read_text()
    away.write_text(text.replace(str(small.control.port), str(port)))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(away))
    with pytest.raises(Restart, match="API server"):
        small.drive(small.node("a"))


def test_a_pause_is_an_annotation(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    ends: list[tuple[int, str]] = []
    pause, resume = ({"metadata": {"annotations": {kubernetes.PAUSED: v}}} for v in ("true", None))
    small = begin(lambda job: ends[0] if ends else None)
    small.declare("a")
    driver = Driver(capsys, small, small.node("a"))
    driver.wait(lambda story: small.job("a")["status"].get("active"))
    small.change("a", "kubectl-annotate", pause)
    driver.wait(lambda story: "paused" in story)
    driver.wait(lambda story: not small.job("a")["status"].get("active"))
    assert small.job("a")["spec"]["suspend"]
    ends.append((0, ""))
    small.change("a", "kubectl-annotate", resume)
    assert "a made" in driver.end()


@pytest.mark.parametrize("manager", ["argocd-controller", "kustomize-controller", "helm"])
def test_a_suspension_by_any_tool_is_undone(begin: Begin, capsys: pytest.CaptureFixture[str], manager: str) -> None:
    ends: list[tuple[int, str]] = []
    small = begin(lambda job: ends[0] if ends else None)
    small.declare("a")
    driver = Driver(capsys, small, small.node("a"))
    for count in (1, 2):  # they do it again and again
        driver.wait(lambda story: small.job("a")["status"].get("active"))
        small.change("a", manager, {"spec": {"suspend": True}})
        driver.wait(lambda story, count=count: story.count("another client") == count)
    ends.append((0, ""))
    assert "a made" in driver.end()


def test_a_server_side_apply_after_a_run_is_refused_and_names_the_driver(begin: Begin, root: Path) -> None:
    small = begin(lambda job: (0, ""))
    needed = ("PersistentVolumeClaim/pretrain", "ServiceAccount/stage", "Job/vocab")
    items = [
        item
        for item in yaml.safe_load_all((root / "k8s" / "pretrain.yaml").read_text())
        if f"{item['kind']}/{item['metadata']['name']}" in needed
    ]
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    applied = small.kubectl("apply", "--server-side", "-f", "-", given=manifest)
    assert applied.count(" serverside-applied\n") == len(needed), applied
    small.drive(small.node("vocab"))
    said = small.kubectl("apply", "--server-side", "-f", "-", given=manifest)
    assert 'conflict with "pretrain-driver"' in said
    assert ".spec.suspend" in said
    assert small.job("vocab")["status"]["succeeded"] == 1, "and nothing runs again"


@pytest.mark.parametrize(("obstacle", "words"), [(quota, "exceeded quota"), (admission, "no image is signed")])
def test_what_keeps_pods_from_being_created_is_said_once(
    begin: Begin, capsys: pytest.CaptureFixture[str], obstacle: Callable[[Small, bool], None], words: str
) -> None:
    small = begin(lambda job: (0, ""))
    small.declare("a")
    obstacle(small, True)
    driver = Driver(capsys, small, small.node("a"))
    driver.wait(lambda story: words in story)
    driver.wait(lambda story: len(small.api.find("events", small.namespace)) > 3)  # one an attempt
    assert driver.story.count(words) == 1
    assert "FailedCreate" in driver.story
    obstacle(small, False)
    assert "a made" in driver.end()


@pytest.mark.parametrize("code", [0, 2])
def test_the_nodes_are_checked_before_anything_runs(begin: Begin, code: int) -> None:
    words = "BAD  links\n" + json.dumps(InputError("bad nodes: node-b (links); repair them").record())
    small = begin(lambda job: (code, words) if job == "preflight" else (0, ""))
    for name in ("a", "train", "preflight"):
        small.declare(name)
    nodes = small.node("a"), dataclasses.replace(small.node("train", "a"), kind="train")
    if code:
        with pytest.raises(UserError, match=r"preflight.*node-b"):
            small.drive(*nodes, preflight=True)
        assert small.order == ["preflight"]
    else:
        small.drive(*nodes, preflight=True)
        assert small.order == ["preflight", "a", "train"]


def test_a_queue_gets_the_job_instead(begin: Begin) -> None:
    """Kueue resumes it; here nobody does until the label is seen."""
    small = begin(lambda job: (0, ""))
    small.declare("a", {QUEUE: kubernetes.WAITS})

    def admit() -> None:
        api = small.control.api()
        while api.get("jobs", small.namespace, "a")["metadata"]["labels"][QUEUE] == kubernetes.WAITS:
            small.stopping.wait(0.1)
        api.patch("jobs", small.namespace, "a", {"spec": {"suspend": False}})

    kueue = threading.Thread(target=admit, daemon=True)
    kueue.start()
    small.drive(small.node("a"), queue="night")
    assert small.job("a")["metadata"]["labels"][QUEUE] == "night"


def test_without_a_queue_the_label_of_none_goes_before_the_job_runs(begin: Begin) -> None:
    small = begin(lambda job: (0, ""))
    small.declare("a", {QUEUE: kubernetes.WAITS})
    small.drive(small.node("a"))
    assert QUEUE not in small.job("a")["metadata"]["labels"]


def test_a_job_in_a_queue_of_the_clusters_own_is_left_to_it(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    small = begin(lambda job: (0, ""))
    small.declare("a", {QUEUE: "default"})
    driver = Driver(capsys, small, small.node("a"))
    driver.wait(lambda story: "queued in default" in story)
    assert small.order == []
    small.change("a", "kueue", {"spec": {"suspend": False}})
    assert "a made" in driver.end()


def kueue_says(small: Small, workload: str, words: str) -> None:
    """Record an event as Kueue's scheduler does for a Workload that it does not admit."""
    about = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "name": workload,
        "namespace": small.namespace,
        "uid": workload,
    }
    event = {
        "metadata": {"generateName": "kueue-"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "Pending",
        "message": words,
        "source": {"component": "kueue-admission"},
        "firstTimestamp": now(),
        "lastTimestamp": now(),
        "count": 1,
    }
    small.api.create("events", small.namespace, event)


def test_a_quota_of_kueue_that_is_too_small_is_said_once(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    small = begin(lambda job: (0, ""))
    small.declare("train", {QUEUE: kubernetes.WAITS})
    driver = Driver(capsys, small, small.node("train"), queue="night")
    driver.wait(lambda story: "queued in night" in story)
    words = "insufficient quota for nvidia.com/gpu in flavor h100, request > maximum capacity"
    kueue_says(small, "job-train-512-0a1b2", "of another Job")
    for _ in range(2):  # at each attempt of its scheduler
        kueue_says(small, "job-train-3c4d5", f"couldn't assign flavors: {words} (16 > 8)")
    driver.wait(lambda story: words in story)
    small.change("train", "kueue", {"spec": {"suspend": False}})
    story = driver.end()
    assert story.count(words) == 1
    assert "of another Job" not in story


def test_the_states_of_stages_are_served_to_prometheus(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    ends: list[tuple[int, str]] = []
    small = begin(lambda job: ends[0] if ends else None)
    small.declare("a")
    small.declare("b")
    port = control_plane.free_port("127.0.0.1")
    driver = Driver(capsys, small, small.node("a"), small.node("b", "a"), prometheus_port=port)
    driver.wait(lambda story: small.job("a")["status"].get("active"))
    address = f"http://127.0.0.1:{port}/metrics"
    wanted = {
        'bert_stage_state{stage="a",state="starting"} 1.0',
        'bert_stage_state{stage="b",state="suspended"} 1.0',
        'bert_stage_failed_pods{stage="a"} 0.0',
    }
    driver.wait(lambda story: wanted <= set(requests.get(address, timeout=30).text.splitlines()))
    ends.append((0, ""))
    assert "b made" in driver.end()
