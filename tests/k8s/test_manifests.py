"""The manifests are what a server takes and the run needs; a planted mistake is always found."""

import itertools
import json
import shutil
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml

from tests.k8s.overlays import kustomize
from tests.k8s.rules import VERSIONS, World, faults

OVERLAYS = ("base", *(f"overlays/{n}" for n in ("cpu-kind", "gpu-8x8", "rehearsal", "site", "store")))
DIGEST = f"sha256:{'0a' * 32}"
SIZES = ("large-nodes", "small-nodes")  # one of them; all others go with any
LONE = ("admission", "cpu", "gang", "shell", "store")  # not with any other
COMPONENTS = ("rdma", "kueue", "topology", "placement", "openshift", "monitoring", "keys", "report-key")
PAIRS = zip(itertools.cycle(SIZES), itertools.combinations(COMPONENTS, 2), strict=False)
COMPOSED = [*PAIRS, *((size, COMPONENTS) for size in SIZES)]


@pytest.fixture(scope="module")
def text(root):
    """The objects of `pretrain.yaml`, as JSON."""
    return json.dumps(list(yaml.safe_load_all((root / "k8s" / "pretrain.yaml").read_text())))


def test_the_manifest_has_no_fault(text):
    assert faults(json.loads(text)) == []


def test_only_training_has_secrets_unless_a_component_says_so(root):
    items = [item for item in yaml.safe_load_all((root / "k8s" / "pretrain.yaml").read_text()) if item]
    with_secrets = {item["metadata"]["name"] for item in items if "secret" in json.dumps(item).lower()}
    assert with_secrets == {"train"}


def graph_of(overrides, folder, root):
    """What the driver would run."""
    (folder / "overrides").write_text(overrides)
    words = ("executor=kubernetes", f"workdir={folder}", "dry_run=true")
    run = subprocess.run(
        [sys.executable, "-m", "pipeline.run", f"@{folder}/overrides", *words],
        capture_output=True,
        text=True,
        cwd=root,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_file_for_a_plain_apply_is_the_one_of_the_base(root):
    plain = root / "k8s" / "pretrain.yaml"
    assert plain.is_symlink()
    assert plain.resolve() == root / "k8s" / "base" / "pretrain.yaml"


def overlay(root, folder, **more):
    """An overlay of the base in `folder`, made."""
    shutil.copytree(root / "k8s", folder / "k8s", symlinks=True)
    made = folder / "k8s" / "overlays" / "made"
    made.mkdir()
    kinds = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    (made / "kustomization.yaml").write_text(yaml.safe_dump({**kinds, "resources": ["../../base"], **more}))
    return kustomize(made)


def settings(*literals):
    """A site's own entries of the ConfigMap `pretrain`."""
    options = {"disableNameSuffixHash": True}
    return {"name": "pretrain", "behavior": "merge", "literals": [*literals], "options": options}


def containers(items):
    """The container of the driver, and of each template."""
    found = {i["metadata"]["name"]: i["spec"] for i in items if i["kind"] in ("Job", "CronJob")}
    jobs = {name: spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec for name, spec in found.items()}
    return {name: job["template"]["spec"]["containers"][0] for name, job in jobs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERLAYS)
def test_the_overrides_of_an_overlay_are_those_of_a_run(root, name, tmp_path):
    items = kustomize(root / "k8s" / name)
    overrides = next(i["data"]["overrides"] for i in items if i["kind"] == "ConfigMap")
    graph_of(overrides, tmp_path, root)


@pytest.mark.parametrize("name", OVERLAYS)
def test_kustomize_makes_manifests_without_fault(root, text, name):
    items = kustomize(root / "k8s" / name)
    assert faults(items) == []
    if name == "base":
        by_name = {(i["kind"], i["metadata"]["name"]): i for i in items}
        assert by_name == {(i["kind"], i["metadata"]["name"]): i for i in json.loads(text)}


def test_a_run_in_a_store_needs_no_volume_of_the_cluster(root):
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
def test_a_registry_reaches_every_job(root, tmp_path, version, suffix):
    images = [
        {"name": f"bert-pipeline/{target}", "newName": f"registry/{target}", **version}
        for target in ("prepare", "trainer")
    ]
    items = overlay(root, tmp_path, images=images)
    held = containers(items)
    assert held.keys() == {"driver", "light", "prepare", "train", "evaluate"}
    known = {f"registry/{target}{suffix}" for target in ("prepare", "trainer")}
    assert {c["image"] for c in held.values()} == known
    assert faults(items) == []


def test_a_patch_of_containers_reaches_every_stage(root, tmp_path):
    added = {"name": "NCCL_DEBUG", "value": "INFO"}
    template = {"spec": {"containers": [{"name": "stage", "env": [added]}]}}
    patch = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "any"},
        "spec": {"jobTemplate": {"spec": {"template": template}}},
    }
    made = overlay(root, tmp_path, patches=[{"target": {"kind": "CronJob"}, "patch": yaml.safe_dump(patch)}])
    held = containers(made)
    assert [name for name, c in held.items() if added not in c["env"]] == ["driver"]
    assert all(c["args"] for c in held.values())


@pytest.mark.parametrize(("size", "others"), COMPOSED)
def test_components_compose(root, size, others, tmp_path):
    names = [f"../../components/{name}" for name in (size, *others, "size")]
    items = overlay(root, tmp_path, configMapGenerator=[settings("gpus=4")], components=names)
    own = [item for item in items if item["apiVersion"] != "monitoring.coreos.com/v1"]
    assert faults(own) == []
    assert (len(own) < len(items)) == ("monitoring" in others)
    requests = containers(items)["train"]["resources"]["requests"]
    assert requests["nvidia.com/gpu"] == "4"
    assert requests["cpu"] == {"large-nodes": "28", "small-nodes": "3"}[size]
    assert ("rdma/hca" in requests) == ("rdma" in others)


def test_no_overlay_or_component_is_left_out(root):
    k8s = root / "k8s"
    assert {folder.name for folder in (k8s / "components").iterdir()} == {"size", *LONE, *SIZES, *COMPONENTS}
    assert {f"overlays/{folder.name}" for folder in (k8s / "overlays").iterdir()} == {
        *OVERLAYS[1:],
        "overlays/trainjob",
    }


@pytest.mark.parametrize("name", [*LONE, *SIZES, *COMPONENTS])
def test_a_component_leaves_the_settings_and_the_claim_of_a_site(root, tmp_path, name):
    own = {"nodes": "3", "gpus": "2", "overrides": "+corpus=text\nworkdir=/data/mine"}
    merged = settings(*(f"{key}={value}" for key, value in own.items()))
    names = [f"../../components/{each}" for each in (name, "size")]
    items = overlay(root, tmp_path, configMapGenerator=[merged], components=names)
    (held,) = (i["data"] for i in items if i["metadata"]["name"] == "pretrain" and "data" in i)
    assert held == own
    modes = [i["spec"]["accessModes"] for i in items if i["kind"] == "PersistentVolumeClaim"]
    assert modes == ([] if name == "store" else [["ReadWriteMany"]])
    for item in items:
        for version in VERSIONS[name == "gang" :]:
            if item["apiVersion"] != "monitoring.coreos.com/v1":
                kubernetes_validate.validate(item, version, strict=True)


def test_a_rehearsal_keeps_what_it_rehearses(root):
    site, made = (kustomize(root / "k8s" / "overlays" / name) for name in ("site", "rehearsal"))
    kinds = {"ConfigMap", "CronJob"}  # sizes, images and overrides
    assert [i for i in made if i["kind"] not in kinds] == [i for i in site if i["kind"] not in kinds]
    by_stage = {name: held["image"] for name, held in containers(made).items()}
    trainer = "registry.example.com/bert-pipeline/trainer:0.2.0"
    assert {by_stage[stage] for stage in ("light", "prepare")} == {trainer}


def test_a_rehearsal_asks_for_no_hardware_of_training(root, tmp_path):
    hardware = ("rdma", "placement", "topology", "large-nodes")
    names = [f"../../components/{name}" for name in (*hardware, "cpu", "size")]
    items = overlay(root, tmp_path, configMapGenerator=[settings("nodes=2", "gpus=0")], components=names)
    (train,) = (i for i in items if (i["kind"], i["metadata"]["name"]) == ("CronJob", "train"))
    pod = train["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert not {"nodeSelector", "affinity"} & pod.keys()
    requests = containers(items)["train"]["resources"]["requests"]
    assert {key for key, value in requests.items() if value != "0"} == {"cpu", "memory", "ephemeral-storage"}
    assert requests["cpu"] == "1"


def test_a_gang_is_what_kubernetes_1_37_takes(root, tmp_path):
    names = [f"../../components/{name}" for name in ("gang", "size")]
    items = overlay(root, tmp_path, configMapGenerator=[settings("nodes=5")], components=names)
    (group,) = (i for i in items if i["kind"] == "PodGroup")
    (train,) = (i for i in items if (i["kind"], i["metadata"]["name"]) == ("CronJob", "train"))
    for item in [*items, *World(items).made]:
        kubernetes_validate.validate(item, "1.37", strict=True)
    job = train["spec"]["jobTemplate"]["spec"]
    assert job["template"]["spec"]["schedulingGroup"]["podGroupName"] == group["metadata"]["name"]
    assert group["spec"]["schedulingPolicy"]["gang"]["minCount"] == job["completions"] == 5


def test_nodes_and_gpus_are_named_once(root, tmp_path):
    merged = settings("nodes=5", "gpus=4")
    items = overlay(root, tmp_path, configMapGenerator=[merged], components=["../../components/size"])
    assert faults(items) == []  # they compare all places
    made = {job["metadata"]["name"]: job["spec"] for job in World(items).made}
    assert [made[name]["completions"] for name in ("train", "preflight")] == [5, 5]
    assert containers(items)["train"]["resources"]["limits"]["nvidia.com/gpu"] == "4"
