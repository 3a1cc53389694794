"""The driver against a real control plane; pods end as each test says."""

import dataclasses
import json

import pytest
import requests

from pipeline.errors import InputError, Restart, UserError
from pipeline.orchestration import job_status
from tests.k8s import control_plane
from tests.k8s.kubelet import now
from tests.k8s.small import Driver

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(300)]

QUEUE = "kueue.x-k8s.io/queue-name"


def templates(driver):
    """The templates of the namespace."""
    return job_status.templates_of(driver.custom.find(job_status.CRONJOBS))


def is_active(small, name):
    """Whether a Job is there and has pods."""
    found = [job for job in small.api.find("jobs", small.namespace) if job["metadata"]["name"] == name]
    return any(job["status"].get("active") for job in found)


def test_a_job_that_nobody_owns_is_followed_if_it_is_for_the_same(begin):
    small = begin(lambda job: (0, ""))
    small.declare("a")
    driver = small.driver(small.node("a"))
    for digest, place in ((driver.record.digest("a"), "a"), ("of other settings", "b")):
        driver.custom.create(job_status.job_of(*templates(driver), place, digest, "/run.json", None))
    small.started()
    small.drive(small.node("a"))
    assert small.order.count("a") == 1
    small.declare("b")
    with pytest.raises(UserError, match=r"stage b: .*other settings.*kubectl delete job b"):
        small.drive(small.node("b"))


def test_a_server_that_stays_away_asks_for_a_restart(begin, monkeypatch, tmp_path):
    small = begin(lambda job: (0, ""))
    away = tmp_path / "away"
    port = control_plane.free_port("127.0.0.1")
    text = small.control.administrator.read_text()
    away.write_text(text.replace(str(small.control.port), str(port)))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(away))
    with pytest.raises(Restart, match="API server"):
        small.drive(small.node("a"))


def test_what_keeps_pods_from_being_created_is_said_once(begin, capsys):
    small = begin(lambda job: (0, ""))
    small.declare("a")
    spec = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    small.api.create("resourcequotas", small.namespace, spec)
    driver = Driver(capsys, small, small.node("a"))
    driver.wait(lambda story: "exceeded quota" in story)
    driver.wait(lambda story: len(small.api.find("events", small.namespace)) > 3)  # one an attempt
    assert driver.story.count("exceeded quota") == 1
    assert "FailedCreate" in driver.story
    small.api.delete("resourcequotas", small.namespace, "none")
    assert "a made" in driver.end()


@pytest.mark.parametrize("code", [0, 2])
def test_the_nodes_are_checked_before_anything_runs(begin, code):
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


def kueue_says(small, workload, words):
    """Record an event as Kueue's scheduler does for a Workload that it does not admit."""
    about = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "name": workload, "uid": workload}
    about["namespace"] = small.namespace
    event = {"metadata": {"generateName": "kueue-"}, "involvedObject": about, "type": "Warning", "reason": "Pending"}
    event |= {"message": words, "source": {"component": "kueue-admission"}, "count": 1}
    event |= {"firstTimestamp": now(), "lastTimestamp": now()}
    small.api.create("events", small.namespace, event)


def test_a_job_waits_in_the_queue_of_kueue_and_a_quota_that_is_too_small_is_said_once(begin, capsys):
    small = begin(lambda job: (0, ""))
    small.declare("train", {QUEUE: "night"}, suspend=True)  # as Kueue's webhook would
    driver = Driver(capsys, small, small.node("train"))
    driver.wait(lambda story: "queued in night" in story)
    assert small.job("train")["metadata"]["labels"][QUEUE] == "night"
    assert small.order == []
    words = "insufficient quota for nvidia.com/gpu in flavor h100, request > maximum capacity"
    kueue_says(small, "job-train-512-0a1b2", "of another Job")
    for _ in range(2):  # at each attempt of its scheduler
        kueue_says(small, "job-train-3c4d5", f"couldn't assign flavors: {words} (16 > 8)")
    driver.wait(lambda story: words in story)
    small.change("train", "kueue", {"spec": {"suspend": False}})
    story = driver.end()
    assert story.count(words) == 1
    assert "of another Job" not in story


def test_the_states_of_stages_are_served_to_prometheus(begin, capsys):
    ends = []
    small = begin(lambda job: ends[0] if ends else None)
    small.declare("a")
    small.declare("b")
    port = control_plane.free_port("127.0.0.1")
    driver = Driver(capsys, small, small.node("a"), small.node("b", "a"), prometheus_port=port)
    driver.wait(lambda story: is_active(small, "a"))
    address = f"http://127.0.0.1:{port}/metrics"
    wanted = {
        'bert_stage_state{stage="a",state="starting"} 1.0',
        'bert_stage_state{stage="b",state="waiting"} 1.0',
        'bert_stage_failed_pods{stage="a"} 0.0',
    }
    driver.wait(lambda story: wanted <= set(requests.get(address, timeout=30).text.splitlines()))
    ends.append((0, ""))
    assert "b made" in driver.end()
