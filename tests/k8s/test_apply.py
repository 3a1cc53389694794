"""The server takes overlays as a user applies them."""

import copy
import json
import os
import subprocess

import pytest
import yaml

from tests.k8s.control_plane import PROGRAMS
from tests.k8s.documented import of_the_page, words
from tests.k8s.overlays import extended, kustomize
from tests.k8s.rules import World
from tests.k8s.small import Small
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(300)]


@pytest.mark.parametrize("overlay", ["site", "store"])
def test_a_label_chooses_what_is_applied(control, root, tmp_path, overlay):
    control.namespace(f"apply-{overlay}")
    small = Small(control, f"apply-{overlay}", tmp_path, lambda job: None)
    folder = str(extended(root, tmp_path, overlay, "shell", "openshift"))
    apply = ("apply", "--validate=strict", "-k", folder, "-l")
    said = small.kubectl(*apply, "app.kubernetes.io/component!=driver")
    assert "pod/shell created" in said, said
    assert "cronjob.batch/light created" in said
    assert "serviceaccount/stage created" in said
    assert "job.batch/driver" not in said
    assert "rror" not in said, said
    small.kubectl("delete", "pod", "shell", "--force")
    said = small.kubectl(*apply, "app.kubernetes.io/component=shell")
    assert said == "pod/shell created\n"


def test_the_commands_of_the_page_work_in_their_order(control, root, tmp_path):
    """But those of a TrainJob, and those that need a running pod: other tests have them."""
    extended(root, tmp_path, "site", "shell").rename(tmp_path / "k8s" / "overlays" / "mine")
    (tmp_path / "keys.env").write_text("HF_TOKEN=any\n")
    lines = [line for line in of_the_page(root) if "trainjob" not in line]
    run, left = [], {"wait", "cp"}
    for line in lines:
        if words(line)[0] in left:
            continue
        path = f"{PROGRAMS}:{os.environ['PATH']}"
        variables = {"PATH": path, "HOME": str(tmp_path)}
        variables["KUBECONFIG"] = str(control.configuration("administrator", "bert"))
        shell, kept = ["bash", "-c", line], {"capture_output": True, "text": True, "check": False}
        done = subprocess.run(shell, cwd=tmp_path, env=variables, **kept)
        assert done.returncode == 0, (line, done.stderr)
        run.append(words(line))
    assert {"create", "label", "-n", "apply", "delete"} == {each[0] for each in run}
    made = control.api().find("jobs", "bert")
    assert [job["metadata"]["name"] for job in made] == ["driver"]


# The component `admission` lets the driver's account make Jobs of the templates, and no others.


SECRET = {"secretKeyRef": {"name": "wandb", "key": "key"}}
EVIL = {"exec": {"command": ["sh", "-c", "env"]}}
CHANGES = [("image", "evil:1"), ("command", ["sh"]), ("args", ["python", "-c", "pass"])]
CHANGES += [("env", [{"name": name, "valueFrom": SECRET}]) for name in ("KEY", "BERT_RECORD")]
CHANGES += [("lifecycle", {"postStart": EVIL}), ("livenessProbe", EVIL), ("readinessProbe", EVIL)]
CHANGES += [("envFrom", [{"secretRef": {"name": "pretrain-env"}}])]


def asked(small, job):
    """What the server says of a Job that the driver's account would make."""
    account = f"--as=system:serviceaccount:{small.namespace}:driver"
    return small.kubectl("create", "--dry-run=server", account, "-f", "-", given=json.dumps(job))


def test_only_jobs_of_the_templates_are_taken(control, root, tmp_path):
    control.namespace("apply-admission")
    small = Small(control, "apply-admission", tmp_path, lambda job: None)
    folder = extended(root, tmp_path, "store", "admission", "rdma")
    policy = tmp_path / "k8s" / "components" / "admission" / "policy.yaml"
    policy.write_text(policy.read_text().replace("metadata.name: bert}", "metadata.name: apply-admission}"))
    said = small.kubectl("apply", "--validate=strict", "-k", str(folder), "-l", "app.kubernetes.io/component!=driver")
    assert "rror" not in said, said
    made = {job["metadata"]["name"]: job for job in World(kustomize(folder)).made}
    for job in made.values():
        del job["metadata"]["ownerReferences"]
    evil = changed(made["train"], "image", "evil:1")
    wait_for(lambda: "not the template's" in asked(small, evil))  # the server compiles policies every second
    for name, job in made.items():
        assert asked(small, job) == f"job.batch/{name} created (server dry run)\n"
    for field, value in CHANGES:
        assert "not the template's" in asked(small, changed(made["vocab"], field, value)), field
    other = copy.deepcopy(made["vocab"])
    other["spec"]["template"]["spec"]["serviceAccountName"] = "driver"
    assert "not the template's" in asked(small, other)
    other = copy.deepcopy(made["vocab"])
    other["metadata"]["annotations"]["bert-pretrain/template"] = "mine-0a"
    assert "names no template" in asked(small, other)
    policy = yaml.safe_load(small.kubectl("get", "validatingadmissionpolicy", "bert-pretrain", "-o", "yaml"))
    assert "expressionWarnings" not in policy.get("status", {}).get("typeChecking", {})


def changed(job, field, value):
    """The Job with another field of its container."""
    other = copy.deepcopy(job)
    other["spec"]["template"]["spec"]["containers"][0][field] = value
    return other
