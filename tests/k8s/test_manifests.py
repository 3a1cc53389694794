"""The manifests are what a server takes and the run needs; a planted mistake is always found."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rules import faults

ABSENT: Any = object()
OVERLAYS = ("base", "overlays/cpu-kind", "overlays/gpu-8x8", "overlays/kueue", "overlays/rdma")

# object, field, value: each a mistake that somebody could make.
MISTAKES = [
    ("ConfigMap/pretrain", "data.nodes", "3"),
    ("ConfigMap/pretrain", "data.nodes", 2),
    ("ConfigMap/pretrain", "data.gpus", "4"),
    ("ConfigMap/pretrain", "data.overrides", "+corpus=wiki\nworkdir=/scratch/wiki\n"),
    ("ConfigMap/pretrain", "data.nodes", ABSENT),
    ("ConfigMap/pretrain", "metadata.name", "settings"),
    ("PodDisruptionBudget/train", "spec.minAvailable", 1),
    ("PodDisruptionBudget/train", "spec.selector.matchLabels", {"role": "training"}),
    ("PersistentVolumeClaim/pretrain", "spec.accessModes.0", "ReadWriteAll"),
    ("PersistentVolumeClaim/pretrain", "spec.accessModes.0", "ReadWriteOnce"),
    ("PersistentVolumeClaim/pretrain", "spec.resources.requests.storage", "400GB"),
    ("PersistentVolumeClaim/pretrain", "metadata.name", "data"),
    ("ServiceAccount/driver", "metadata.name", "pretrain"),
    ("Role/driver", "rules.1.resourceNames.5", "training"),
    ("Role/driver", "rules.1.verbs.0", "update"),
    ("Role/driver", "rules.1.resourceNames", ABSENT),
    ("Role/driver", "rules.2.verbs", ["list", "delete"]),
    ("Role/driver", "rules.0.apiGroups.0", ""),
    ("RoleBinding/driver", "roleRef.name", "runner"),
    ("RoleBinding/driver", "roleRef.kind", "ClusterRole"),
    ("NetworkPolicy/pretrain", "spec.podSelector.matchLabels", {"app": "bert"}),
    ("NetworkPolicy/pretrain", "spec.policyTypes.1", "Outgress"),
    ("NetworkPolicy/pretrain", "spec.egress.1", ABSENT),
    ("NetworkPolicy/pretrain", "spec.ingress.0", ABSENT),
    ("Service/train", "spec.clusterIP", ABSENT),
    ("Service/train", "spec.publishNotReadyAddresses", ABSENT),
    ("Service/train", "spec.selector", {"bert-pretrain/role": "trainer"}),
    ("Service/train", "spec.ports.0.port", 29400),
    ("Service/train", "metadata.name", "rendezvous"),
    ("Job/driver", "POD.restartPolicy", "OnFailure"),
    ("Job/driver", "POD.automountServiceAccountToken", False),
    ("Job/driver", "POD.serviceAccountName", "root"),
    ("Job/driver", "C.args.4", "executor=local"),
    ("Job/driver", "C.volumeMounts.2", ABSENT),
    ("Job/driver", "POD.securityContext.runAsUser", 0),
    ("Job/driver", "POD.securityContext.seccompProfile.type", "Unconfined"),
    ("Job/driver", "spec.template.metadata.labels", {"app": "driver"}),
    ("Job/vocab", "spec.suspend", False),
    ("Job/vocab", "spec.selector", {"matchLabels": {"app.kubernetes.io/component": "vocab"}}),
    ("Job/vocab", "spec.podReplacementPolicy", "TerminatingOrFailed"),
    ("Job/vocab", "spec.podFailurePolicy.rules.0.onExitCodes.containerName", "main"),
    ("Job/vocab", "spec.podFailurePolicy.rules.0.onExitCodes.values", [1]),
    ("Job/vocab", "spec.podFailurePolicy.rules.0.onExitCodes.values", [2, 75]),
    ("Job/vocab", "spec.podFailurePolicy.rules.0.onExitCodes.operator", "Equals"),
    ("Job/vocab", "spec.podFailurePolicy.rules.0.action", "Fail"),
    ("Job/vocab", "spec.podFailurePolicy.rules.1", ABSENT),
    ("Job/vocab", "C.args.3", "prepare"),
    ("Job/vocab", "C.args.5", "cores=$(CPUS)"),
    ("Job/vocab", "C.env.3.value", "$(THREADS)"),
    ("Job/vocab", "C.env.2.valueFrom.resourceFieldRef.resource", "limits.cpu"),
    ("Job/vocab", "C.resources.limits.memory", "8Gi"),
    ("Job/vocab", "C.resources.limits.memory", "32 GB"),
    ("Job/vocab", "C.securityContext.capabilities.drop.0", "NET_ADMIN"),
    ("Job/vocab", "C.securityContext.readOnlyRootFilesystem", False),
    ("Job/vocab", "C.image", "bert-pipeline/prepare:latest"),
    ("Job/vocab", "C.image", "bert-pipeline/prepare"),
    ("Job/vocab", "C.volumeMounts.0.name", "volume"),
    ("Job/vocab", "C.volumeMounts.1.mountPath", "/data"),
    ("Job/vocab", "POD.volumes.0.persistentVolumeClaim.claimName", "scratch"),
    ("Job/vocab", "POD.volumes.1.configMap.items.0.key", "override"),
    ("Job/vocab", "POD.volumes.2.emptyDir.sizeLimit", "20 GiB"),
    ("Job/vocab", "POD.container", []),
    ("Job/vocab", "metadata.labels", {"app.kubernetes.io/component": "vocab"}),
    ("Job/vocab", "metadata.name", "vocabulary"),
    ("Job/vocab", "metadata.name", "Vocab"),
    ("Job/vocab", "spec.backofLimit", 3),
    ("Job/train", "spec.completions", 4),
    ("Job/train", "spec.parallelism", 1),
    ("Job/train", "spec.completionMode", "NonIndexed"),
    ("Job/train", "spec.completionMode", "indexed"),
    ("Job/train", "spec.backoffLimit", 6),
    ("Job/train", "spec.activeDeadlineSeconds", ABSENT),
    ("Job/train", "POD.subdomain", "training"),
    ("Job/train", "POD.terminationGracePeriodSeconds", 30),
    ("Job/train", "POD.affinity", ABSENT),
    ("Job/train", "POD.tolerations", []),
    ("Job/train", "POD.tolerations.0.operator", "Any"),
    ("Job/train", "POD.volumes.3", ABSENT),
    ("Job/train", "POD.volumes.3.emptyDir.medium", ABSENT),
    ("Job/train", "POD.volumes.3.emptyDir.medium", "RAM"),
    ("Job/train", "POD.volumes.3.emptyDir.sizeLimit", "256Gi"),
    ("Job/train", "C.volumeMounts.3.mountPath", "/dev/shmem"),
    ("Job/train", "C.resources.requests", {"cpu": "16", "memory": "64Gi"}),
    ("Job/train", "C.resources.limits", {"memory": "128Gi", "nvidia.com/gpu": "7500m"}),
    ("Job/train", "C.env.2.value", "training"),
    ("Job/train", "C.env.3.valueFrom.configMapKeyRef.key", "node"),
    ("Job/train", "C.env.5.value", "/var/heartbeat"),
    ("Job/train", "C.env.6.valueFrom.secretKeyRef.optional", ABSENT),
    ("Job/train", "C.livenessProbe", ABSENT),
    ("Job/train", "C.livenessProbe.timeoutSeconds", 1),
    ("Job/train", "C.ports", ABSENT),
    ("Job/train", "spec.template.metadata.labels", {"bert-pretrain/role": "training"}),
    ("Job/evaluate", "spec.completions", 4),
    ("Job/evaluate", "C.env.2.value", "4"),
]


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    """The objects of `pretrain.yaml`, as JSON: what an anchor names becomes many objects."""
    return json.dumps(yaml.safe_load((root / "k8s" / "pretrain.yaml").read_text())["items"])


def plant(items: list[dict[str, Any]], name: str, field: str, value: Any) -> None:
    """Change one field of one object."""
    found = next(i for i in items if f"{i['kind']}/{i['metadata']['name']}" == name)
    place: Any = found
    field = field.replace("C.", "POD.containers.0.", 1) if field.startswith("C.") else field
    field = field.replace("POD.", "spec.template.spec.")
    *path, last = [int(p) if p.isdecimal() else p for p in field.split(".")]
    for part in path:
        place = place[part]
    if value is ABSENT:
        del place[last]
    else:
        place[last] = value


def test_the_manifest_has_no_fault(text: str) -> None:
    assert faults(json.loads(text)) == []


def graph_of(overrides: str, folder: Path, root: Path) -> str:
    """What the driver would run."""
    (folder / "overrides").write_text(overrides)
    run = subprocess.run(
        [sys.executable, "-m", "pipeline.run", f"@{folder}/overrides", "executor=kubernetes",
         f"workdir={folder}", "dry_run=true"],
        capture_output=True, text=True, cwd=root, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_every_stage_of_the_graph_has_a_job(text: str, root: Path, tmp_path: Path) -> None:
    items = json.loads(text)
    jobs = {item["metadata"]["name"] for item in items if item["kind"] == "Job"} - {"driver"}
    lines = graph_of(items[0]["data"]["overrides"], tmp_path, root).splitlines()
    stages = {line.split()[0] for line in lines}
    assert {re.sub("^evaluate-.*", "evaluate", stage) for stage in stages} == jobs


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_makes_manifests_without_fault(
    root: Path, text: str, overlay: str, tmp_path: Path
) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on this machine")
    made = subprocess.run(
        ["kubectl", "kustomize", root / "k8s" / overlay], capture_output=True, text=True, check=True
    )
    items = list(yaml.safe_load_all(made.stdout))
    assert faults(items) == []
    overrides = next(i["data"]["overrides"] for i in items if i["kind"] == "ConfigMap")
    graph_of(overrides, tmp_path, root)
    if overlay == "base":
        by_name = {(i["kind"], i["metadata"]["name"]): i for i in items}
        assert by_name == {(i["kind"], i["metadata"]["name"]): i for i in json.loads(text)}


@pytest.mark.parametrize(
    ("name", "field", "value"), MISTAKES, ids=[f"{n}-{f}-{v!s:.16}" for n, f, v in MISTAKES]
)
def test_a_planted_mistake_is_found(text: str, name: str, field: str, value: Any) -> None:
    items = json.loads(text)
    plant(items, name, field, value)
    assert items != json.loads(text)
    assert faults(items)
