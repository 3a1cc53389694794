"""What an API server, a kubelet or the run itself would refuse of the manifests, beyond schemas.

`faults(objects)` lists all of it, one line each, naming the object and the field. What is fixed is in `usual.yaml`;
the rules here are about what has to fit together.
"""

import functools
import json
import re
from pathlib import Path

import kubernetes_validate
import yaml
from kubernetes_validate import utils

from pipeline.orchestration import job_status
from pipeline.orchestration.job_status import PREFLIGHT
from pipeline.stages.registry import STAGES

VERSIONS = ("1.31", "1.37")  # the oldest that has all we use, and the newest published
USUAL = yaml.safe_load(Path(__file__).with_name("usual.yaml").read_text())
RUN_STAGE = "pipeline.orchestration.run_stage"
GRACE = 300  # seconds for all ranks to agree on a step and save
ACCOUNT, GPU = "automountServiceAccountToken", "nvidia.com/gpu"
UNITS = {"": 1.0, "m": 1e-3} | {each: 1e3**n for n, each in enumerate("kMGT", 1)}
UNITS |= {f"{each}i": 2.0 ** (10 * n) for n, each in enumerate("KMGT", 1)}
# The validator reads all definitions again for each object.
utils.schema_contents, utils.all_versions = map(functools.cache, (utils.schema_contents, utils.all_versions))


def quantity(text):
    """A resource quantity in units (bytes, cores); None where it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-zA-Z]*)", str(text))
    return float(found[1]) * UNITS[found[2]] if found and found[2] in UNITS else None


class World:
    """All objects that are applied together, and the Jobs that the driver makes of the templates."""

    def __init__(self, items):
        self.given = items
        self.templates = job_status.templates_of(items)
        self.made = [
            job_status.job_of(template, stage, "0a", "/data/run/run.json", job_status.Owner("driver", "7"))
            for template in self.templates
            if not template.is_runtime
            for stage in template.stages
        ]
        self.items = [*items, *self.made]

    def all(self, kind):
        """Those of a kind."""
        return [item for item in self.items if item["kind"] == kind]

    def get(self, kind, name):
        """The one of this name."""
        return next((i for i in self.all(kind) if i["metadata"]["name"] == name), None)

    def settings(self, name="pretrain"):
        """The entries of a ConfigMap; by default what the user sets."""
        return (self.get("ConfigMap", name) or {}).get("data") or {}

    def selected(self, labels):
        """The Jobs whose pods have all of these labels."""
        return [job for job in self.all("Job") if labels.items() <= labels_of(job).items()]

    def environment(self, container):
        """The variables of a container whose values are known before it runs."""
        found = {}
        for entry in container.get("env", []):
            reference = (entry.get("valueFrom") or {}).get("configMapKeyRef")
            if "value" in entry or reference:
                held = self.settings(reference["name"]).get(reference["key"], "") if reference else entry["value"]
                found[entry["name"]] = held
        return found


def labels_of(job):
    """The labels of a Job's pods."""
    return job["spec"]["template"]["metadata"].get("labels") or {}


def container_of(job):
    """The first container of a Job's pods."""
    return job["spec"]["template"]["spec"]["containers"][0]


def lacks(usual, held, where=""):
    """Where an object differs from what it usually has."""
    if isinstance(usual, dict) and isinstance(held, dict):
        for key, value in usual.items():
            yield from lacks(value, held.get(key), f"{where}.{key}")
    elif isinstance(usual, list) and isinstance(held, list) and isinstance(usual[0], dict):
        for value in usual:
            if all(list(lacks(value, one)) for one in held):
                yield f"{where}: none is {value}"
    elif usual != held:
        yield f"{where}: {held}, not {usual}"


def faults(items):
    """Everything that is wrong with these objects."""
    found = [fault for item in items for fault in schema_faults(json.dumps(item))]
    if found:
        return found  # the rules below read the fields as the schema has them
    world = World(items)
    found = [fault for job in world.made for fault in schema_faults(json.dumps(job))]
    for kind, rule in (("Job", job_faults), ("Job", pod_faults), ("Service", service_faults), ("Role", role_faults),
                       ("RoleBinding", binding_faults), ("NetworkPolicy", policy_faults),
                       ("PodDisruptionBudget", budget_faults), ("PersistentVolumeClaim", claim_faults),
                       ("CronJob", lambda _, item: lacks(USUAL["CronJob"], item["spec"]))):  # fmt: skip
        for item in world.all(kind):
            found += [f"{kind}/{item['metadata']['name']}: {why}" for why in rule(world, item)]
    return [*found, *names(world), *stages(world), *settings(world)]


@functools.cache
def schema_faults(text):
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


def names(world):
    """Names and labels as DNS and the API want them; each object once; all of one application."""
    known = [(item["kind"], item["metadata"]["name"]) for item in world.given]
    yield from (f"{kind}/{name}: twice" for kind, name in set(known) if known.count((kind, name)) > 1)
    for item, (kind, name) in zip(world.given, known, strict=True):
        labels = item["metadata"].get("labels") or {}
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?", name):
            yield f"{kind}/{name}: not a DNS label, or too long for its pods' names"
        if "app.kubernetes.io/part-of" not in labels:
            yield f"{kind}/{name}: no label app.kubernetes.io/part-of"
        for key, value in labels.items():
            if not re.fullmatch(r"[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", value):
                yield f"{kind}/{name}: label {key}={value}"


def job_faults(world, job):
    """One Job without its pods."""
    spec, name, container = job["spec"], job["metadata"]["name"], container_of(job)
    arguments, is_stage = container.get("args", []), RUN_STAGE in container.get("args", [])
    yield from lacks(USUAL["Job"], spec)
    kind = "stage" if is_stage else "driver"
    if spec.get("podFailurePolicy") != USUAL["policies"][kind] or container["name"] != kind:
        yield "podFailurePolicy: other codes, or of another container"
    for held in (job["metadata"]["labels"], labels_of(job)):
        if held.get("app.kubernetes.io/component") != name:
            yield "label component: not the name"
    if not is_stage:
        return
    count = spec.get("completions", 1)
    yield from lacks(USUAL["stage"], spec)
    yield from lacks(USUAL["indexed" if count > 1 or "completionMode" in spec else "alone"], spec)
    if arguments[3:5] != ["--from", "$(BERT_RECORD)"]:
        yield "args: does not read its record"
    if spec.get("activeDeadlineSeconds", 0) < 3600:
        yield "activeDeadlineSeconds: an hour at least"
    if count != spec.get("parallelism", 1):
        yield "parallelism: not equal to completions"
    for key in {"BERT_PARTS", "BERT_NODES"} & world.environment(container).keys():
        if world.environment(container)[key] != str(count):
            yield f"env {key}={world.environment(container)[key]}: completions is {count}"
    if "bert-pretrain/role" in labels_of(job):
        yield from training_faults(world, job)


def training_faults(world, job):
    """What several nodes need to meet, to stop together and to start again."""
    spec, settings, labels, container = job["spec"], world.settings(), labels_of(job), container_of(job)
    pod = spec["template"]["spec"]
    gpus = str(container["resources"].get("limits", {}).get(GPU, 0))
    for key, held in (("nodes", str(spec.get("completions", 1))), ("gpus", gpus)):
        if settings.get(key) != held:
            yield f"{held} {key}, but {key}={settings.get(key)} in the ConfigMap"
    if pod.get("terminationGracePeriodSeconds", 30) < GRACE:
        yield f"terminationGracePeriodSeconds: less than {GRACE}"
    service = world.get("Service", pod.get("subdomain", ""))
    if service is None or not service["spec"]["selector"].items() <= labels.items():
        yield f"subdomain: no Service {pod.get('subdomain')} that selects these pods"
    if world.environment(container).get("BERT_SERVICE") != pod.get("subdomain"):
        yield "env BERT_SERVICE: not the subdomain"
    terms = pod.get("affinity", {}).get("podAntiAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    if gpus != "0" and not terms:
        yield "affinity: nothing keeps two pods off one host"
    for term in terms:
        own = term["labelSelector"]["matchLabels"].items() <= labels.items()
        if term["topologyKey"] != "kubernetes.io/hostname" or not own:
            yield "affinity: not of hosts, or not the Job's own pods"


def budget_faults(world, budget):
    """The disruption budget protects the training pods, all or none."""
    chosen = world.selected(budget["spec"]["selector"]["matchLabels"])
    if not chosen:
        yield "selects no pods"
    if any(budget["spec"].get("minAvailable", 0) < job["spec"].get("completions", 1) for job in chosen):
        yield "minAvailable is less than the number of nodes"


def service_faults(world, service):
    """A name for each pod, with ports that they have."""
    yield from lacks(USUAL["Service"], service["spec"])
    chosen = world.selected(service["spec"]["selector"])
    if not chosen:
        yield "selects no pods"
    for job in chosen:
        open_ports = {port["containerPort"] for port in container_of(job).get("ports", [])}
        if not {port.get("targetPort", port["port"]) for port in service["spec"]["ports"]} <= open_ports:
            yield "a port that is none of its pods'"


def role_faults(world, role):
    """The driver may do what it does, and nothing else."""
    yield from (f"the driver must {rule}" for rule in USUAL["Role"] if rule not in role["rules"])
    yield from (f"the driver need not {rule}" for rule in role["rules"] if rule not in USUAL["Role"])


def binding_faults(world, binding):
    """A role and accounts that are there."""
    for one in (binding["roleRef"], *binding["subjects"]):
        if world.get(one["kind"], one["name"]) is None:
            yield f"no {one['kind']} {one['name']}"


def policy_faults(world, policy):
    """Pods of this application reach what they need; nobody reaches them."""
    yield from lacks(USUAL["NetworkPolicy"], policy["spec"])
    if len(world.selected(policy["spec"]["podSelector"].get("matchLabels") or {})) != len(world.all("Job")):
        yield "podSelector does not select all pods"


def claim_faults(world, claim):
    """A volume that many nodes share."""
    spread = any("affinity" in job["spec"]["template"]["spec"] for job in world.all("Job"))
    if spread and "ReadWriteMany" not in claim["spec"]["accessModes"]:
        yield "several hosts write to it: ReadWriteMany"
    if not quantity(claim["spec"]["resources"]["requests"]["storage"]):
        yield "storage: no quantity"


def stages(world):
    """Each kind of stage has one template; there is one driver."""
    for kind in (*STAGES, PREFLIGHT):
        found = [template.name for template in world.templates if kind in template.stages]
        if len(found) != 1:
            yield f"stage {kind}: templates {found}"
    arguments = [container_of(job).get("args", []) for job in world.all("Job")]
    if sum("pipeline.run" in each and "executor=kubernetes" in each for each in arguments) != 1:
        yield "not one driver"


def settings(world):
    """The ConfigMap's overrides name a folder of the volume, for the run or copies of it."""
    text = world.settings().get("overrides", "")
    places = re.findall(r"^workdir=(\S+)", text, re.MULTILINE)
    if places and places[0].startswith("s3://"):
        places = re.findall(r"^mirror=(\S+)", text, re.MULTILINE)
    mounted = {m["mountPath"] for job in world.all("Job") for m in container_of(job).get("volumeMounts", [])}
    if len(places) != 1 or f"/{places[0].split('/')[1]}" not in mounted:
        yield f"ConfigMap/pretrain: overrides: workdir={places}: not on a mounted volume"


def pod_faults(world, job):
    """Everything that is wrong with a Job's pod template."""
    pod = job["spec"]["template"]["spec"]
    yield from lacks(USUAL["pod"], pod)
    if USUAL["user"]["securityContext"].keys() & pod.get("securityContext", {}).keys() - {"fsGroupChangePolicy"}:
        yield from lacks(USUAL["user"], pod)  # OpenShift chooses one
    name = pod.get("serviceAccountName", "default")
    token = pod.get(ACCOUNT, (world.get("ServiceAccount", name) or {ACCOUNT: None}).get(ACCOUNT, True))
    if token != (name == "driver"):  # it alone talks to the API server
        yield f"{ACCOUNT}: {token} for account {name}, which is there or not"
    yield from volumes(world, pod)
    for container in pod["containers"]:
        yield from lacks(USUAL["container"], container)
        if not re.fullmatch(r"[a-z0-9][a-z0-9._/:@-]*[:@](?!latest$)[\w.:-]+", container.get("image", "")):
            yield f"image: {container.get('image')}: a name and a tag, which is not latest, or a digest"
        yield from resources(pod, container)
        yield from environment(world, container)
        yield from mounts(pod, container)
        yield from probes(labels_of(job).get("app.kubernetes.io/component", ""), container)


def resources(pod, container):
    """Quantities that can be read; requests within limits; GPUs as the API wants them."""
    held = container.get("resources") or {}
    requests, limits = held.get("requests") or {}, held.get("limits") or {}
    if None in (found := [quantity(amount) for amount in (*requests.values(), *limits.values())]):
        yield f"resources: {held}: {found}: no quantity"
        return
    if missing := {"cpu", "memory", "ephemeral-storage"} - requests.keys():
        yield f"resources.requests: {missing} not said"
    for name in requests.keys() & limits.keys():
        if (quantity(requests[name]) or 0) > (quantity(limits[name]) or 0):
            yield f"resources: {name}: requests above limits"
    if (quantity(requests.get("memory", "0")) or 0) < 2**28:
        yield "resources.requests.memory: less than Python needs"
    if requests.get(GPU) != limits.get(GPU) or not str(limits.get(GPU, "1")).isdecimal():
        yield f"resources: {GPU}: requests equal limits, whole numbers"
    if GPU in limits:
        yield from lacks(USUAL["gpu"], pod)
        shared = {m["name"] for m in container["volumeMounts"] if m["mountPath"] == "/dev/shm"}
        if not shared & {v["name"] for v in pod["volumes"] if (v.get("emptyDir") or {}).get("medium") == "Memory"}:
            yield "volumes: no memory at /dev/shm, where NCCL and data workers meet"


def environment(world, container):
    """References that resolve; variables that are there when they are used."""
    known = set()
    kinds = [kind for entry in container.get("envFrom", []) for kind in entry]
    if kinds not in (["configMapRef"], ["configMapRef", "secretRef"]):
        yield f"envFrom: {kinds}: one ConfigMap of the user's, and a Secret where he says so"
    for reference in (each for entry in container.get("envFrom", []) for each in entry.values()):
        if not reference.get("optional"):
            yield f"envFrom: {reference['name']}: nobody has to have it"
    for entry in container.get("env", []):
        name, source = entry["name"], entry.get("valueFrom") or {}
        if name in known or ("value" in entry) == bool(source):
            yield f"env {name}: twice, or not either value or valueFrom"
        if unknown := {*re.findall(r"\$\(([^)]*)\)", entry.get("value", ""))} - known:
            yield f"env {name}: {unknown} not defined before"
        known.add(name)
        reference = source.get("configMapKeyRef")
        if reference and not reference.get("optional") and reference["key"] not in world.settings(reference["name"]):
            yield f"env {name}: no key {reference['key']} in ConfigMap {reference['name']}"
        if "secretKeyRef" in source and not source["secretKeyRef"].get("optional"):
            yield f"env {name}: a secret that nobody has to have"
        field = (source.get("resourceFieldRef") or {}).get("resource", "")
        if field and field.partition(".")[2] not in container["resources"].get(field.partition(".")[0], {}):
            yield f"env {name}: the container has no {field}"
    words = " ".join([*container.get("command", []), *container.get("args", [])])
    if unknown := {*re.findall(r"\$\(([^)]*)\)", words)} - known:
        yield f"args: {unknown} not defined"


def volumes(world, pod):
    """Volumes of objects that are there, each once."""
    held = pod.get("volumes", [])
    if len({volume["name"] for volume in held}) < len(held) or any(len(volume) != 2 for volume in held):
        yield "volumes: one twice, or not of one source"
    for volume in held:
        name, source = volume["name"], volume.get("configMap")
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim and world.get("PersistentVolumeClaim", claim) is None:
            yield f"volumes: {name}: no PersistentVolumeClaim {claim}"
        if source and not {i["key"] for i in source.get("items", [])} <= world.settings(source["name"]).keys():
            yield f"volumes: {name}: no ConfigMap {source['name']} with these keys"
        if quantity((volume.get("emptyDir") or {}).get("sizeLimit", 0)) is None:
            yield f"volumes: {name}: {volume['emptyDir']}"


def mounts(pod, container):
    """Every mount has a volume; the read-only root leaves places to write."""
    named = {volume["name"]: volume for volume in pod.get("volumes", [])}
    held = container.get("volumeMounts", [])
    paths = [mount["mountPath"] for mount in held]
    if named.keys() != {mount["name"] for mount in held}:
        yield "volumes: not those that are mounted"
    if len(set(paths)) < len(paths) or not all(path.startswith("/") for path in paths):
        yield f"volumeMounts: {paths}: two at one place, or not absolute"
    writable = [m["mountPath"] for m in held if not m.get("readOnly") and "configMap" not in named.get(m["name"], {})]
    home = {e["name"]: e.get("value", "") for e in container.get("env", [])}.get("HOME", "/")
    if not {"/tmp", home} <= {*writable}:
        yield f"volumeMounts: /tmp or HOME={home} cannot be written"
    limit = quantity((container["resources"].get("limits") or {}).get("memory", "1Ti")) or 0
    scratch = [volume.get("emptyDir") or {} for volume in named.values()]
    if sum(quantity(v.get("sizeLimit", "1Ti")) or 0 for v in scratch if v.get("medium") == "Memory") >= limit:
        yield "volumes: files in memory count against the container's memory limit"


def probes(stage, container):
    """The liveness probe looks where the ranks leave their signs of life."""
    probe = container.get("livenessProbe")
    if not probe:
        if stage.partition("-")[0] in ("train", "prepare", "evaluate"):
            yield "livenessProbe: nobody sees a frozen process"
        return
    yield from lacks(USUAL["probe"], probe)
    words = (probe.get("exec") or {}).get("command") or []
    home = {e["name"]: e.get("value") for e in container.get("env", [])}.get("BERT_HEARTBEAT")
    if "pipeline.common.heartbeat" not in words or home not in words:
        yield f"livenessProbe: does not look into BERT_HEARTBEAT={home}"
