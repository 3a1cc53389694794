"""What an API server, a kubelet or the run itself would refuse of the manifests, beyond schemas.

`faults(objects)` lists all of it, one line each, naming the object and the field.
"""

import functools
import json
import re
from collections.abc import Iterator

import kubernetes_validate
from kubernetes_validate import utils

from pipeline.orchestration.job_status import PREFLIGHT
from pipeline.stages.registry import STAGES
from tests.k8s.rules_pods import pod_faults
from tests.k8s.rules_world import Object, World, number, quantity, unknown

VERSIONS = ("1.31", "1.37")  # the oldest that has all we use, and the newest published
RUN_STAGE = "pipeline.orchestration.run_stage"
NEVER = "0 0 31 2 *"
TRAINING = "bert-pretrain/role"
# The validator reads all definitions again for each object.
utils.schema_contents, utils.all_versions = map(functools.cache, (utils.schema_contents, utils.all_versions))
SIDECAR = "sidecar.istio.io/inject"
TRIES = 3  # of a pod that fails by itself, before its Job fails
GRACE = 300  # seconds for all ranks to agree on a step and save

Faults = Iterator[str]


def faults(items: list[Object]) -> list[str]:
    """Everything that is wrong with these objects."""
    found = [fault for item in items for fault in schema_faults(json.dumps(item))]
    if found:
        return found  # the rules below read the fields as the schema has them
    world = World(items)
    found = [fault for job in world.made for fault in schema_faults(json.dumps(job))]
    for job in world.all("Job"):
        found += [f"Job/{job['metadata']['name']}: {why}" for why in job_faults(world, job)]
        found += [f"Job/{job['metadata']['name']}: {why}" for why in pod_faults(world, job)]
    for rule in (names, budgets, rights, stages, networks, services, settings, claims):
        found += rule(world)
    return found


@functools.cache
def schema_faults(text: str) -> list[str]:
    """Against the published schemas, which refuse unknown fields and wrong types."""
    item, found = json.loads(text), []
    if item["apiVersion"].startswith("trainer.kubeflow.org/"):
        return []  # tests of the overlay have its models
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(item, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            where = ".".join(map(str, error.path))
            found.append(f"{item.get('kind')}: {where}: {error.message} (Kubernetes {version})")
    return found


def names(world: World) -> Faults:
    """Names and labels as DNS and the API want them; each object once; all of one application."""
    seen = set()
    for item in world.given:
        kind, metadata = item["kind"], item["metadata"]
        name, labels = metadata["name"], metadata.get("labels") or {}
        if (kind, name) in seen:
            yield f"{kind}/{name}: twice"
        seen.add((kind, name))
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?", name):
            yield f"{kind}/{name}: not a DNS label, or too long for its pods' names"
        if "app.kubernetes.io/part-of" not in labels:
            yield f"{kind}/{name}: no label app.kubernetes.io/part-of"
        for key, value in labels.items():
            if not re.fullmatch(r"[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", value):
                yield f"{kind}/{name}: label {key}={value}"


def job_faults(world: World, job: Object) -> Faults:
    """One Job without its pods."""
    spec = job["spec"]
    yield from unknown(spec, "completionMode", ("Indexed", "NonIndexed"))
    yield from unknown(spec, "podReplacementPolicy", ("Failed",))  # with a podFailurePolicy
    if spec.get("ttlSecondsAfterFinished", 0) < 1:
        yield "ttlSecondsAfterFinished: above 0"
    if "selector" in spec:
        yield "selector: the server makes it; it refuses one that is given"
    yield from failure_policy(spec)
    if (spec["template"]["metadata"].get("labels") or {}).get(SIDECAR) != "false":
        yield "labels: Istio's sidecar would keep the pod from ending"
    if not is_stage(job):
        return
    if spec.get("suspend"):
        yield "suspend: a stage's Job is made when it is due"
    if spec.get("activeDeadlineSeconds", 0) < 3600:
        yield "activeDeadlineSeconds: an hour at least"
    indexed = spec.get("completionMode") == "Indexed"
    limit = spec.get("backoffLimitPerIndex" if indexed else "backoffLimit")
    if limit != TRIES - 1 or (indexed and spec.get("maxFailedIndexes") != 0):
        yield f"backoffLimit: {TRIES} tries of a pod, whatever the number of nodes"
    if spec.get("completions", 1) != spec.get("parallelism", 1):
        yield "parallelism: not equal to completions"
    if spec.get("completions", 1) > 1 and spec.get("completionMode") != "Indexed":
        yield "completionMode: several pods have to know which one each is"
    if is_training(job):
        yield from training_faults(world, job)


def failure_policy(spec: Object) -> Faults:
    """Disruptions are nobody's fault; a bad configuration is not tried twice."""
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or []
    containers = [c["name"] for c in spec["template"]["spec"]["containers"]]
    if spec["template"]["spec"].get("restartPolicy") != "Never":
        yield "podFailurePolicy: needs restartPolicy Never"
    stops: list[int] = []
    again: list[int] = []
    ignored: list[str] = []
    for rule in rules:
        yield from unknown(rule, "action", ("FailJob", "Ignore", "Count"))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if (codes is None) == (conditions is None):
            yield "podFailurePolicy: a rule has onExitCodes or onPodConditions"
        if codes is not None:
            yield from unknown(codes, "operator", ("In", "NotIn"))
            if codes.get("containerName", containers[0]) not in containers:
                yield f"podFailurePolicy: no container {codes['containerName']}"
            if not codes["values"] or 0 in codes["values"] or max(codes["values"]) > 255:
                yield f"podFailurePolicy: values {codes['values']}"
            if rule["action"] == "FailJob":
                stops += codes["values"]
            elif rule["action"] == "Ignore":
                again += codes["values"]
        for condition in conditions or []:
            if condition.get("status", "True") not in ("True", "False", "Unknown"):
                yield f"podFailurePolicy: status {condition['status']}"
            if rule["action"] == "Ignore":
                ignored.append(condition["type"])
    if 2 not in stops:
        yield "podFailurePolicy: exit code 2, bad configuration, does not fail the Job"
    if is_stage({"spec": spec}) and (again != [75] or 75 in stops):
        yield "podFailurePolicy: exit code 75 alone asks for a restart, and counts as no failure"
    if "DisruptionTarget" not in ignored:
        yield "podFailurePolicy: disruptions count as failures"


def training_faults(world: World, job: Object) -> Faults:
    """What several nodes need to meet, to stop together and to start again."""
    spec, settings = job["spec"], world.settings()
    pod = spec["template"]["spec"]
    nodes = spec.get("completions", 1)
    if settings.get("nodes") != str(nodes):
        yield f"completions: {nodes}, but nodes={settings.get('nodes')} in the ConfigMap"
    if pod.get("terminationGracePeriodSeconds", 30) < GRACE:
        yield f"terminationGracePeriodSeconds: less than {GRACE}"
    labels = spec["template"]["metadata"]["labels"]
    service = world.get("Service", pod.get("subdomain", ""))
    if service is None:
        yield f"subdomain: no Service {pod.get('subdomain')}"
    elif not service["spec"]["selector"].items() <= labels.items():
        yield f"subdomain: Service {pod['subdomain']} does not select these pods"
    container = pod["containers"][0]
    environment = world.environment(container)
    if environment.get("BERT_SERVICE") != pod.get("subdomain"):
        yield f"env BERT_SERVICE={environment.get('BERT_SERVICE')}: not the subdomain"
    gpus = str(number(container["resources"].get("limits", {}).get("nvidia.com/gpu", 0)))
    if settings.get("gpus") != gpus:
        yield f"nvidia.com/gpu: {gpus}, but gpus={settings.get('gpus')} in the ConfigMap"
    terms = pod.get("affinity", {}).get("podAntiAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    if gpus != "0" and not terms:
        yield "affinity: nothing keeps two pods off one host"
    for term in terms:
        if term["topologyKey"] != "kubernetes.io/hostname":
            yield f"affinity: topologyKey {term['topologyKey']}"
        if not term["labelSelector"]["matchLabels"].items() <= labels.items():
            yield "affinity: does not select the Job's own pods"


def is_stage(job: Object) -> bool:
    """Whether a Job is a stage's."""
    return RUN_STAGE in job["spec"]["template"]["spec"]["containers"][0].get("args", [])


def is_training(job: Object) -> bool:
    """Whether its pods are ranks that meet."""
    return TRAINING in (job["spec"]["template"]["metadata"].get("labels") or {})


def budgets(world: World) -> Faults:
    """The disruption budget protects the training pods, all or none."""
    for budget in world.all("PodDisruptionBudget"):
        name, spec = budget["metadata"]["name"], budget["spec"]
        chosen = world.selected(spec["selector"]["matchLabels"])
        if not chosen:
            yield f"PodDisruptionBudget/{name}: selects no pods"
        for job in chosen:
            if spec.get("minAvailable", 0) < job["spec"].get("completions", 1):
                yield f"PodDisruptionBudget/{name}: minAvailable is less than the number of nodes"


def services(world: World) -> Faults:
    """Headless, and known before anything is ready."""
    for service in world.all("Service"):
        name, spec = service["metadata"]["name"], service["spec"]
        if spec.get("clusterIP") != "None":
            yield f"Service/{name}: clusterIP: None gives each pod a name"
        if not spec.get("publishNotReadyAddresses"):
            yield f"Service/{name}: publishNotReadyAddresses: ranks meet before they are ready"
        chosen = world.selected(spec["selector"])
        if not chosen:
            yield f"Service/{name}: selects no pods"
        for job in chosen:
            container = job["spec"]["template"]["spec"]["containers"][0]
            open_ports = {port["containerPort"] for port in container.get("ports", [])}
            for port in spec["ports"]:
                if port.get("targetPort", port["port"]) not in open_ports:
                    yield f"Service/{name}: port {port['port']} is none of its pods'"


def rights(world: World) -> Faults:
    """The driver may do what it does, and nothing else."""
    need = {("list", kind, "") for kind in ("jobs", "cronjobs", "pods", "events")} | {("create", "jobs", "")}
    for binding in world.all("RoleBinding"):
        name, reference = binding["metadata"]["name"], binding["roleRef"]
        role = world.get(reference["kind"], reference["name"])
        if role is None:
            yield f"RoleBinding/{name}: no {reference['kind']} {reference['name']}"
            continue
        for subject in binding["subjects"]:
            if world.get(subject["kind"], subject["name"]) is None:
                yield f"RoleBinding/{name}: no {subject['kind']} {subject['name']}"
        granted = {
            (verb, resource, which)
            for rule in role["rules"]
            for verb in rule["verbs"]
            for resource in rule["resources"]
            for which in rule.get("resourceNames") or [""]
            if rule["apiGroups"] == (["batch"] if resource.endswith("jobs") else [""])
        }
        for verb, resource, which in sorted(need - granted):
            yield f"Role/{reference['name']}: the driver must {verb} {resource} {which}"
        for verb, resource, which in sorted(granted - need):
            yield f"Role/{reference['name']}: the driver need not {verb} {resource} {which}"


def stages(world: World) -> Faults:
    """Each kind of stage has one template, which runs nothing itself; the driver is there."""
    for kind in (*STAGES, PREFLIGHT):
        found = [template.name for template in world.templates if kind in template.stages]
        if len(found) != 1:
            yield f"stage {kind}: templates {found}"
    for template in world.templates:
        spec = template.item["spec"]
        if not template.is_runtime and not (spec.get("suspend") and spec["schedule"] == NEVER):
            yield f"CronJob/{template.name}: it would run by itself"
    drivers = 0
    for job in world.all("Job"):
        arguments = job["spec"]["template"]["spec"]["containers"][0].get("args", [])
        name = job["metadata"]["name"]
        for held in (job["metadata"], job["spec"]["template"]["metadata"]):
            if held["labels"].get("app.kubernetes.io/component") != name:
                yield f"Job/{name}: label component"
        if is_stage(job):
            if arguments[3:5] != ["--from", "$(BERT_RECORD)"]:
                yield f"Job/{name}: args: does not read its record"
        elif "pipeline.run" in arguments and "executor=kubernetes" in arguments:
            drivers += 1
    if drivers != 1:
        yield f"{drivers} drivers"


def networks(world: World) -> Faults:
    """Pods of this application reach one another, names and the API server; nobody reaches them."""
    policies = world.all("NetworkPolicy")
    for policy in policies:
        name, spec = policy["metadata"]["name"], policy["spec"]
        labels = spec["podSelector"].get("matchLabels") or {}
        if len(world.selected(labels)) != len(world.all("Job")):
            yield f"NetworkPolicy/{name}: podSelector does not select all pods"
        for kind in spec.get("policyTypes", []):
            if kind not in ("Ingress", "Egress"):
                yield f"NetworkPolicy/{name}: policyTypes: {kind}"
        for rule in spec.get("egress", []):
            for port in rule.get("ports", []):
                if port.get("protocol", "TCP") not in ("TCP", "UDP", "SCTP"):
                    yield f"NetworkPolicy/{name}: protocol {port['protocol']}"
    own = {"podSelector": {"matchLabels": {"app.kubernetes.io/part-of": "bert-pretrain"}}}
    for direction, side in (("ingress", "from"), ("egress", "to")):
        rules = [rule for policy in policies for rule in policy["spec"].get(direction, [])]
        if own not in [peer for rule in rules for peer in rule.get(side, [])]:
            yield f"NetworkPolicy: {direction}: the ranks cannot meet"
    ports = {port["port"] for rule in rules for port in rule.get("ports", [])}
    if {53, 443} - ports:
        yield "NetworkPolicy: egress: names or the API server cannot be reached"


def settings(world: World) -> Faults:
    """The ConfigMap's overrides name a folder of the volume, for the run or copies of it."""
    text = world.settings().get("overrides", "")
    places = re.findall(r"^workdir=(\S+)", text, re.MULTILINE)
    if places and places[0].startswith("s3://"):
        places = re.findall(r"^mirror=(\S+)", text, re.MULTILINE)
    mounted = {m["mountPath"] for job in world.all("Job") for m in world.mounts(job)}
    if len(places) != 1 or f"/{places[0].split('/')[1]}" not in mounted:
        yield f"ConfigMap/pretrain: overrides: workdir={places}: not on a mounted volume"


def claims(world: World) -> Faults:
    """A volume that many nodes share."""
    modes = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
    spread = any("affinity" in job["spec"]["template"]["spec"] for job in world.all("Job"))
    for claim in world.all("PersistentVolumeClaim"):
        name, spec = claim["metadata"]["name"], claim["spec"]
        for mode in spec["accessModes"]:
            if mode not in modes:
                yield f"PersistentVolumeClaim/{name}: accessModes: {mode}"
        if spread and "ReadWriteMany" not in spec["accessModes"]:
            yield f"PersistentVolumeClaim/{name}: several hosts write to it: ReadWriteMany"
        if not quantity(spec["resources"]["requests"]["storage"]):
            yield f"PersistentVolumeClaim/{name}: storage: no quantity"
