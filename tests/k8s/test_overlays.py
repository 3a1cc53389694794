"""What the overlays to copy have for a cluster: a registry, ports, identities, a shell."""

import ipaddress
import json
import re
import shutil
import subprocess

import pytest
import yaml

from tests.k8s.overlays import extended, kustomize, of
from tests.k8s.rules import World, faults, pod_faults

TO_COPY = ("gpu-8x8", "rehearsal", "site", "store", "trainjob")
# Where nodes answer with an identity of the cloud, by the documentation of GKE, EKS and EC2.
IDENTITIES = [("169.254.169.254", 80), ("169.254.169.254", 8080), ("169.254.170.23", 80)]
IDENTITIES += [("169.254.169.252", port) for port in (987, 988)]


def egress(items):
    """The rules for destinations outside the namespace."""
    return of(items, "NetworkPolicy")["pretrain"]["spec"]["egress"]


def is_allowed(items, address, port, protocol="TCP"):
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


def uncommented(root, folder, name):
    """Return the objects of an overlay with the patches that it has as comments."""
    shutil.copytree(root / "k8s", folder / "k8s", symlinks=True)
    path = folder / "k8s" / "overlays" / name / "kustomization.yaml"
    text, count = re.subn(r"(?m)^# ( *(?:- target:|patch:|- \{op:))", r"\1", path.read_text())
    assert count
    path.write_text(text)
    return kustomize(path.parent)


@pytest.mark.parametrize("name", TO_COPY)
def test_every_image_has_the_registry(root, name):
    items = kustomize(root / "k8s" / "overlays" / name)
    images = set(re.findall(r"'image': '([^']*)'", str(items)))
    expected = {f"registry.example.com/bert-pipeline/{each}:0.2.0" for each in ("prepare", "trainer")}
    assert images == expected


@pytest.mark.parametrize("name", ["site", "store"])
def test_both_accounts_have_the_password_of_the_registry(root, name):
    accounts = of(kustomize(root / "k8s" / "overlays" / name), "ServiceAccount")
    secrets = {key: account.get("imagePullSecrets") for key, account in accounts.items()}
    assert secrets == {"driver": [{"name": "registry"}], "stage": [{"name": "registry"}]}


def test_pods_reach_a_store_and_the_identities_that_it_takes(root):
    items = kustomize(root / "k8s" / "overlays" / "store")
    assert is_allowed(items, "10.0.0.1", 9000)
    assert not is_allowed(items, "10.0.0.1", 80)
    for address, port in IDENTITIES:
        assert is_allowed(items, address, port), (address, port)


@pytest.mark.parametrize("name", ["site", "store"])
def test_the_patches_that_are_comments_give_an_identity(root, tmp_path, name):
    items = uncommented(root, tmp_path, name)
    assert all(is_allowed(items, *place) for place in IDENTITIES)
    accounts = of(items, "ServiceAccount").values()
    annotated = [len(account["metadata"].get("annotations", {})) for account in accounts]
    assert annotated == ([1, 1] if name == "store" else [0, 0])
    assert len(egress(items)) == 3


@pytest.mark.parametrize("name", ["site", "store"])
def test_a_shell_has_what_the_overlays_pods_have(root, tmp_path, name):
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
def test_pods_reach_the_names_of_openshift(root, tmp_path, protocol):
    items = kustomize(extended(root, tmp_path, "site", "openshift"))
    assert is_allowed(items, "10.0.0.1", 5353, protocol)
    assert is_allowed(items, "10.0.0.1", 53, protocol)


# The alerts are what Prometheus takes, and each fires when it should.


ACTIVE = 'bert_stage_state{namespace="bert", stage="train", state="running"}'
STEP, SAVED = "last_step_time_seconds", "last_checkpoint_time_seconds"
# Series of rank 0 as promtool writes them, one value in five minutes for ten hours.
HEALTHY = {STEP: "0+300x120", "mfu": "0.4x120", "data_wait_share": "0.01x120", "start_time_seconds": "0x120"}
HEALTHY |= {SAVED: "0+300x120", "skipped_steps": "0x120", "loss": "4-0.01x120"}
ENDED = {name: f"{values.removesuffix('x120')}x12" for name, values in HEALTHY.items()}  # after an hour
AGAIN = {name: "_x120" for name in HEALTHY} | {"start_time_seconds": "0+1800x120"}  # and dies before a step
# What the series of a training are, and the alerts that fire after ten hours.
STORIES: dict[str, tuple[dict[str, str], set[str]]] = {
    "it goes on": (HEALTHY, set()),
    "it stands still": (HEALTHY | {STEP: "0+300x12 3600x108"}, {"TrainingStalled"}),
    "the watchdog, or a lost node, ended it": (ENDED, {"TrainingStalled", "CheckpointOld"}),
    "it restarts without a step": (AGAIN, {"TrainingStalled", "CheckpointOld"}),
    "it is slow": (HEALTHY | {"mfu": "0.1x120"}, {"TrainingSlow"}),
    "it waits": (HEALTHY | {"data_wait_share": "0.2x120"}, {"TrainingWaitsForData"}),
    "it never saved": ({name: HEALTHY[name] for name in HEALTHY if name != SAVED}, {"CheckpointOld"}),
    "it saved five hours ago": (HEALTHY | {SAVED: "0+300x60 18000x60"}, {"CheckpointOld"}),
    "its loss rises": (HEALTHY | {"loss": "2x110 4x10"}, {"TrainingDiverges"}),
}


@pytest.fixture(scope="module")
def rules(root):
    """The groups of the PrometheusRule, as a file of Prometheus has them."""
    path = root / "k8s" / "components" / "monitoring" / "alerts.yaml"
    return yaml.safe_load(path.read_text())["spec"]


def promtool(*words):
    """Run the checker of rules."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not on this machine (Debian's package prometheus)")
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)


def fired(rules, folder, state, series, wanted):
    """What promtool says where exactly these alerts should fire; `state` are the values of the driver's."""
    bare = json.loads(json.dumps(rules))
    checks = []
    for rule in bare["groups"][0]["rules"]:
        del rule["annotations"]  # they have values in them
        own = {} if "by (namespace)" in rule["expr"] else {"pod": "train-0"}
        alert = {"exp_labels": rule["labels"] | {"namespace": "bert"} | own}
        found = [alert] if rule["alert"] in wanted else []
        checks.append({"eval_time": "595m", "alertname": rule["alert"], "exp_alerts": found})
    (folder / "rules.yaml").write_text(yaml.safe_dump(bare))
    labels = '{namespace="bert", pod="train-0"}'
    inputs = [{"series": f"bert_train_{name}{labels}", "values": values} for name, values in series.items()]
    one = {"interval": "5m", "input_series": [{"series": ACTIVE, "values": state}, *inputs], "alert_rule_test": checks}
    test = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [one]}
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    done = promtool("test", "rules", folder / "test.yaml")
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_rules_are_valid(rules, tmp_path):
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    done = promtool("check", "rules", tmp_path / "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 rules found" in done.stdout


@pytest.mark.parametrize("story", STORIES)
def test_what_should_be_seen_fires_alone(rules, tmp_path, story):
    series, alerts = STORIES[story]
    assert fired(rules, tmp_path, "1x120", series, alerts) == ""
    assert fired(rules, tmp_path, "1x120", series, alerts ^ {"TrainingSlow"}), "this check sees a difference"


def test_a_training_that_is_done_or_waits_for_others_is_no_alert(rules, tmp_path):
    assert fired(rules, tmp_path, "1x12 0x108", ENDED, set()) == ""
