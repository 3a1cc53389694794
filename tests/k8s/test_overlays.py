"""What the overlays to copy have for a cluster: a registry, ports, identities, a shell."""

import ipaddress
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.overlays import Object, extended, kustomize, of
from tests.k8s.rules import faults
from tests.k8s.rules_pods import pod_faults
from tests.k8s.rules_world import World

TO_COPY = ("gpu-8x8", "rehearsal", "site", "store", "trainjob")
# Where nodes answer with an identity of the cloud, by the documentation of GKE, EKS and EC2.
IDENTITIES = [
    ("169.254.169.254", 80),
    ("169.254.169.254", 8080),
    ("169.254.169.252", 987),
    ("169.254.169.252", 988),
    ("169.254.170.23", 80),
]


def egress(items: list[Object]) -> list[Any]:
    """The rules for destinations outside the namespace."""
    rules: list[Any] = of(items, "NetworkPolicy")["pretrain"]["spec"]["egress"]
    return rules


def is_allowed(items: list[Object], address: str, port: int, protocol: str = "TCP") -> bool:
    """Whether pods may reach this port of an address."""
    for rule in egress(items):
        ports = [(p.get("protocol", "TCP"), p["port"]) for p in rule.get("ports", [])]
        if any("podSelector" in peer for peer in rule.get("to", [])):
            continue
        blocks = [peer["ipBlock"]["cidr"] for peer in rule.get("to", [])]
        inside = [ipaddress.ip_address(address) in ipaddress.ip_network(one) for one in blocks]
        if (not ports or (protocol, port) in ports) and (not blocks or any(inside)):
            return True
    return False


def uncommented(root: Path, folder: Path, name: str) -> list[Object]:
    """Return the objects of an overlay with the patches that it has as comments."""
    shutil.copytree(root / "k8s", folder / "k8s", symlinks=True)
    path = folder / "k8s" / "overlays" / name / "kustomization.yaml"
    text, count = re.subn(r"(?m)^# ( *(?:- target:|patch:|- \{op:))", r"\1", path.read_text())
    assert count
    path.write_text(text)
    return kustomize(path.parent)


@pytest.mark.parametrize("name", TO_COPY)
def test_every_image_has_the_registry(root: Path, name: str) -> None:
    items = kustomize(root / "k8s" / "overlays" / name)
    images = set(re.findall(r"'image': '([^']*)'", str(items)))
    expected = {f"registry.example.com/bert-pipeline/{each}:0.2.0" for each in ("prepare", "trainer")}
    assert images == expected


@pytest.mark.parametrize("name", ["site", "store"])
def test_both_accounts_have_the_password_of_the_registry(root: Path, name: str) -> None:
    accounts = of(kustomize(root / "k8s" / "overlays" / name), "ServiceAccount")
    secrets = {key: account.get("imagePullSecrets") for key, account in accounts.items()}
    assert secrets == {"driver": [{"name": "registry"}], "stage": [{"name": "registry"}]}


def test_pods_reach_a_store_and_the_identities_that_it_takes(root: Path) -> None:
    items = kustomize(root / "k8s" / "overlays" / "store")
    assert is_allowed(items, "10.0.0.1", 9000)
    assert not is_allowed(items, "10.0.0.1", 80)
    for address, port in IDENTITIES:
        assert is_allowed(items, address, port), (address, port)


@pytest.mark.parametrize("name", ["site", "store"])
def test_the_patches_that_are_comments_give_an_identity(root: Path, tmp_path: Path, name: str) -> None:
    items = uncommented(root, tmp_path, name)
    assert all(is_allowed(items, *place) for place in IDENTITIES)
    accounts = of(items, "ServiceAccount").values()
    annotated = [len(account["metadata"].get("annotations", {})) for account in accounts]
    assert annotated == ([1, 1] if name == "store" else [0, 0])
    assert len(egress(items)) == 3


@pytest.mark.parametrize("name", ["site", "store"])
def test_a_shell_has_what_the_overlays_pods_have(root: Path, tmp_path: Path, name: str) -> None:
    items = kustomize(extended(root, tmp_path, name, "shell", "openshift"))
    pod = of(items, "Pod")["shell"]
    driver = of(items, "Job")["driver"]["spec"]["template"]
    image = driver["spec"]["containers"][0]["image"]
    assert pod["spec"]["containers"][0]["image"] == image
    assert pod["spec"]["securityContext"] == driver["spec"]["securityContext"]
    assert "runAsUser" not in pod["spec"]["securityContext"]
    as_job = {"metadata": pod["metadata"], "spec": {"template": pod}}
    assert [*pod_faults(World(items), as_job), *faults(items)] == []


@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
def test_pods_reach_the_names_of_openshift(root: Path, tmp_path: Path, protocol: str) -> None:
    items = kustomize(extended(root, tmp_path, "site", "openshift"))
    assert is_allowed(items, "10.0.0.1", 5353, protocol)
    assert is_allowed(items, "10.0.0.1", 53, protocol)
