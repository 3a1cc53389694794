"""The manifests are what a server takes and the run needs; a planted mistake is always found."""

import importlib
import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from overlays import kustomize
from rules import faults

from pipeline.orchestration import compose_run

ABSENT: Any = object()
OVERLAYS = ("base", *(f"overlays/{n}" for n in ("cpu-kind", "gpu-8x8", "rehearsal", "site", "store")))
DIGEST = f"sha256:{'0a' * 32}"
SIZES = ("large-nodes", "small-nodes")  # one of them; all others go with any
COMPONENTS = ("rdma", "kueue", "topology", "placement", "openshift", "monitoring")

# object, field, value: each a mistake that somebody could make.
MISTAKES = [
    ("ConfigMap/pretrain", "data.nodes", "3"),
    ("ConfigMap/pretrain", "data.nodes", 2),
    ("ConfigMap/pretrain", "data.gpus", "4"),
    ("ConfigMap/pretrain", "data.overrides", "+corpus=wiki\nworkdir=/scratch/wiki\n"),
    ("ConfigMap/pretrain", "data.nodes", ABSENT),
    ("ConfigMap/pretrain", "metadata.name", "settings"),
    ("NetworkPolicy/pretrain-egress", "spec.egress.0.ports.2", ABSENT),
    ("NetworkPolicy/pretrain-egress", "spec.egress.0.ports.0.protocol", "QUIC"),
    ("NetworkPolicy/pretrain-egress", "spec.podSelector.matchLabels", {"app": "bert"}),
    ("ServiceAccount/stage", "metadata.name", "default"),
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
    ("Role/driver", "rules.3", ABSENT),
    ("Role/driver", "rules.0.apiGroups.0", ""),
    ("RoleBinding/driver", "roleRef.name", "runner"),
    ("RoleBinding/driver", "roleRef.kind", "ClusterRole"),
    ("NetworkPolicy/pretrain", "spec.podSelector.matchLabels", {"app": "bert"}),
    ("NetworkPolicy/pretrain", "spec.policyTypes.1", "Outgress"),
    ("NetworkPolicy/pretrain", "spec.egress.0", ABSENT),
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
    ("Job/driver", "spec.template.metadata.labels", {"app.kubernetes.io/part-of": "bert-pretrain"}),
    ("Job/vocab", "spec.suspend", False),
    ("Job/vocab", "spec.selector", {"matchLabels": {"app.kubernetes.io/component": "vocab"}}),
    ("Job/vocab", "spec.podReplacementPolicy", "TerminatingOrFailed"),
    ("Job/vocab", "spec.podFailurePolicy.rules.0.onExitCodes.containerName", "main"),
    ("Job/vocab", "spec.podFailurePolicy.rules.0.onExitCodes.values", [1]),
    ("Job/vocab", "spec.podFailurePolicy.rules.0.onExitCodes.values", [2, 75]),
    ("Job/vocab", "spec.podFailurePolicy.rules.0.onExitCodes.operator", "Equals"),
    ("Job/vocab", "spec.podFailurePolicy.rules.0.action", "Fail"),
    ("Job/vocab", "spec.podFailurePolicy.rules.1", ABSENT),
    ("Job/vocab", "spec.podFailurePolicy.rules.2", ABSENT),
    ("Job/vocab", "spec.podFailurePolicy.rules.1.action", "Count"),
    ("Job/vocab", "spec.backoffLimit", 6),
    ("Job/vocab", "metadata.annotations", ABSENT),
    ("Job/vocab", "POD.tolerations.0", ABSENT),
    ("Job/vocab", "POD.tolerations.1.tolerationSeconds", ABSENT),
    ("Job/vocab", "POD.serviceAccountName", "default"),
    ("Job/vocab", "C.envFrom.1", ABSENT),
    ("Job/vocab", "C.envFrom.0.configMapRef.optional", ABSENT),
    ("Job/vocab", "C.resources.requests.ephemeral-storage", ABSENT),
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
    ("Job/train", "spec.backoffLimitPerIndex", 200),
    ("Job/train", "spec.backoffLimitPerIndex", ABSENT),
    ("Job/train", "spec.maxFailedIndexes", 2),
    ("Job/train", "spec.activeDeadlineSeconds", ABSENT),
    ("Job/train", "POD.subdomain", "training"),
    ("Job/train", "POD.terminationGracePeriodSeconds", 30),
    ("Job/train", "POD.affinity", ABSENT),
    ("Job/train", "POD.tolerations", []),
    ("Job/train", "POD.tolerations.2.operator", "Any"),
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
    ("Job/evaluate", "C.livenessProbe", ABSENT),
    ("Job/evaluate", "C.env.4", ABSENT),
    ("Job/prepare", "C.livenessProbe", ABSENT),
    ("Job/prepare-512", "C.env.4.value", "/heartbeat"),
]


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    """The objects of `pretrain.yaml`, as JSON."""
    return json.dumps(list(yaml.safe_load_all((root / "k8s" / "pretrain.yaml").read_text())))


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
        [
            sys.executable,
            "-m",
            "pipeline.run",
            f"@{folder}/overrides",
            "executor=kubernetes",
            f"workdir={folder}",
            "dry_run=true",
        ],
        capture_output=True,
        text=True,
        cwd=root,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_jobs_are_the_stages_of_all_recipes(text: str, root: Path) -> None:
    jobs = {item["metadata"]["name"] for item in json.loads(text) if item["kind"] == "Job"}
    stages: set[str] = set()
    for recipe in (root / "conf" / "recipe").glob("*.yaml"):
        stages |= set(compose_run.recipe_stages([f"recipe={recipe.stem}"]))
    names = {re.sub("^evaluate-.*", "evaluate", stage) for stage in stages}  # they share a Job
    assert jobs == {*names, "driver", "preflight"}


@pytest.fixture(scope="module")
def generate(root: Path) -> Any:
    """The program that makes the manifests."""
    sys.path.insert(0, str(root / "k8s"))
    try:
        return importlib.import_module("generate")
    finally:
        sys.path.remove(str(root / "k8s"))


def test_the_committed_files_are_what_the_templates_make(generate: Any) -> None:
    for template, path in generate.FILES.items():
        text = path.read_text()
        assert text == generate.render(template), "run `python k8s/generate.py`"
        tokens = {type(token).__name__ for token in yaml.scan(text)}
        assert not tokens & {"AnchorToken", "AliasToken"}, "kustomize loses what hangs on an anchor"


def test_the_file_for_a_plain_apply_is_the_one_of_the_base(root: Path) -> None:
    plain = root / "k8s" / "pretrain.yaml"
    assert plain.is_symlink()
    assert plain.resolve() == root / "k8s" / "base" / "pretrain.yaml"


def overlay(root: Path, folder: Path, **more: Any) -> list[dict[str, Any]]:
    """An overlay of the base in `folder`, made."""
    shutil.copytree(root / "k8s", folder / "k8s", symlinks=True)
    made = folder / "k8s" / "overlays" / "made"
    made.mkdir()
    kinds = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    (made / "kustomization.yaml").write_text(yaml.safe_dump({**kinds, "resources": ["../../base"], **more}))
    return kustomize(made)


def settings(*literals: str) -> dict[str, Any]:
    """A site's own entries of the ConfigMap `pretrain`."""
    options = {"disableNameSuffixHash": True}
    return {"name": "pretrain", "behavior": "merge", "literals": [*literals], "options": options}


def containers(items: list[dict[str, Any]], name: str = "") -> dict[str, dict[str, Any]]:
    """The container of each Job, or of each that runs in the container `name`."""
    jobs = {i["metadata"]["name"]: i for i in items if i["kind"] == "Job"}
    found = {key: job["spec"]["template"]["spec"]["containers"][0] for key, job in jobs.items()}
    return {key: held for key, held in found.items() if name in ("", held["name"])}


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERLAYS)
def test_kustomize_makes_manifests_without_fault(root: Path, text: str, name: str, tmp_path: Path) -> None:
    items = kustomize(root / "k8s" / name)
    assert faults(items) == []
    overrides = next(i["data"]["overrides"] for i in items if i["kind"] == "ConfigMap")
    graph_of(overrides, tmp_path, root)
    if name == "base":
        by_name = {(i["kind"], i["metadata"]["name"]): i for i in items}
        assert by_name == {(i["kind"], i["metadata"]["name"]): i for i in json.loads(text)}


def test_a_run_in_a_store_needs_no_volume_of_the_cluster(root: Path) -> None:
    items = kustomize(root / "k8s" / "overlays" / "store")
    assert "PersistentVolumeClaim" not in {item["kind"] for item in items}
    assert "persistentVolumeClaim" not in json.dumps(items)
    overrides = next(i["data"]["overrides"] for i in items if i["kind"] == "ConfigMap").split()
    assert any(line.startswith("workdir=s3://") for line in overrides)
    mirror = next(line.partition("=")[2] for line in overrides if line.startswith("mirror="))
    for held in containers(items).values():
        assert mirror in {mount["mountPath"] for mount in held["volumeMounts"]}


@pytest.mark.parametrize(
    ("version", "suffix"), [({"newTag": "1.2.3"}, ":1.2.3"), ({"digest": DIGEST}, f"@{DIGEST}")], ids=["tag", "digest"]
)
def test_a_registry_reaches_every_job(root: Path, tmp_path: Path, version: dict[str, str], suffix: str) -> None:
    images = [
        {"name": f"bert-pipeline/{target}", "newName": f"registry/{target}", **version}
        for target in ("prepare", "trainer")
    ]
    items = overlay(root, tmp_path, images=images)
    held = containers(items)
    assert len(held) == 16
    known = {f"registry/{target}{suffix}" for target in ("prepare", "trainer")}
    assert {c["image"] for c in held.values()} == known
    assert faults(items) == []


def test_a_patch_of_containers_reaches_every_stage(root: Path, tmp_path: Path) -> None:
    added = {"name": "NCCL_DEBUG", "value": "INFO"}
    container = {"name": "stage", "env": [added]}
    patch = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "any"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    target = {"kind": "Job", "name": "[^d].*|download"}
    made = overlay(root, tmp_path, patches=[{"target": target, "patch": yaml.safe_dump(patch)}])
    held = containers(made, "stage")
    assert len(held) == 15
    assert all(added in c["env"] and c["args"] for c in held.values())


def test_a_replacement_reaches_every_job(root: Path, text: str, tmp_path: Path) -> None:
    names = containers(json.loads(text))
    targets = [
        {"select": {"kind": "Job", "name": name}, "fieldPaths": ["spec.template.spec.containers.0.image"]}
        for name in names
    ]
    source = {"kind": "ConfigMap", "name": "pretrain", "fieldPath": "data.nodes"}
    made = overlay(root, tmp_path, replacements=[{"source": source, "targets": targets}])
    assert [c["image"] for c in containers(made).values()] == ["2"] * 16


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("others", [*itertools.combinations(COMPONENTS, 2), COMPONENTS])
def test_components_compose(root: Path, size: str, others: tuple[str, ...], tmp_path: Path) -> None:
    names = [f"../../components/{name}" for name in (size, *others, "size")]
    items = overlay(root, tmp_path, configMapGenerator=[settings("gpus=4")], components=names)
    own = [item for item in items if item["apiVersion"] != "monitoring.coreos.com/v1"]
    assert faults(own) == []
    assert (len(own) < len(items)) == ("monitoring" in others)
    requests = containers(items)["train-512"]["resources"]["requests"]
    assert requests["nvidia.com/gpu"] == "4"
    assert requests["cpu"] == {"large-nodes": "32", "small-nodes": "3"}[size]
    assert ("rdma/hca" in requests) == ("rdma" in others)


@pytest.mark.parametrize("name", ["cpu", "gang", "store", *SIZES, *COMPONENTS])
def test_a_component_leaves_the_settings_and_the_claim_of_a_site(root: Path, tmp_path: Path, name: str) -> None:
    own = {"nodes": "3", "gpus": "2", "overrides": "+corpus=text\nworkdir=/data/mine"}
    merged = settings(*(f"{key}={value}" for key, value in own.items()))
    names = [f"../../components/{each}" for each in (name, "size")]
    items = overlay(root, tmp_path, configMapGenerator=[merged], components=names)
    (held,) = (i["data"] for i in items if i["metadata"]["name"] == "pretrain" and "data" in i)
    assert held == own
    modes = [i["spec"]["accessModes"] for i in items if i["kind"] == "PersistentVolumeClaim"]
    assert modes == ([] if name == "store" else [["ReadWriteMany"]])


def test_a_rehearsal_keeps_what_it_rehearses(root: Path) -> None:
    site, made = (kustomize(root / "k8s" / "overlays" / name) for name in ("site", "rehearsal"))
    kinds = {"ConfigMap", "Job", "PodDisruptionBudget"}  # sizes, images and overrides
    assert [i for i in made if i["kind"] not in kinds] == [i for i in site if i["kind"] not in kinds]
    by_stage = {name: held["image"] for name, held in containers(made).items()}
    trainer = "registry.example.com/bert-pipeline/trainer:0.1.0"
    assert {by_stage[stage] for stage in ("vocab", "prepare", "prepare-512", "tasks")} == {trainer}


def test_a_gang_is_what_kubernetes_1_37_takes(root: Path, tmp_path: Path) -> None:
    names = [f"../../components/{name}" for name in ("gang", "size")]
    items = overlay(root, tmp_path, configMapGenerator=[settings("nodes=5")], components=names)
    groups = {i["metadata"]["name"]: i for i in items if i["kind"] == "PodGroup"}
    for item in items:
        kubernetes_validate.validate(item, "1.37", strict=True)
        pod = item["spec"]["template"]["spec"] if item["kind"] == "Job" else {}
        if "schedulingGroup" in pod:
            group = groups.pop(pod["schedulingGroup"]["podGroupName"])
            assert group["metadata"]["name"] == item["metadata"]["name"]
            wanted = group["spec"]["schedulingPolicy"]["gang"]["minCount"]
            assert wanted == item["spec"]["completions"] == 5
    assert groups == {}


def test_nodes_and_gpus_are_named_once(root: Path, tmp_path: Path) -> None:
    merged = settings("nodes=5", "gpus=4")
    items = overlay(root, tmp_path, configMapGenerator=[merged], components=["../../components/size"])
    assert faults(items) == []  # they compare all places
    jobs = {i["metadata"]["name"]: i["spec"] for i in items if i["kind"] == "Job"}
    names = ("train", "train-512", "train-8192", "train-decay", "preflight")
    assert [jobs[name]["completions"] for name in names] == [5] * 5
    assert containers(items)["train"]["resources"]["limits"]["nvidia.com/gpu"] == "4"


@pytest.mark.parametrize(("name", "field", "value"), MISTAKES, ids=[f"{n}-{f}-{v!s:.16}" for n, f, v in MISTAKES])
def test_a_planted_mistake_is_found(text: str, name: str, field: str, value: Any) -> None:
    items = json.loads(text)
    plant(items, name, field, value)
    assert items != json.loads(text)
    assert faults(items)
