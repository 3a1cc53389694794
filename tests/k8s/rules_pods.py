"""What a scheduler, a kubelet or our program would refuse of a Job's pods."""

import re
from collections.abc import Iterator

from tests.k8s.rules_world import Object, World, number, quantity, unknown

ACCOUNT = "automountServiceAccountToken"
GPU = "nvidia.com/gpu"
Faults = Iterator[str]


def pod_faults(world: World, job: Object) -> Faults:
    """Everything that is wrong with a Job's pod template."""
    template = job["spec"]["template"]
    pod = template["spec"]
    if template["metadata"].get("labels", {}).items() < job["metadata"]["labels"].items():
        yield "template: lacks the Job's labels"
    yield from unknown(pod, "restartPolicy", ("Never", "OnFailure"))
    yield from accounts(world, pod)
    yield from lost_nodes(pod)
    yield from pod_security(pod)
    yield from volumes(world, pod)
    for container in pod["containers"]:
        yield from resources(pod, container)
        yield from environment(world, container)
        yield from mounts(pod, container)
        yield from container_security(container)
        yield from probes(template["metadata"]["labels"].get("app.kubernetes.io/component", ""), container)
        yield from parts(job, world.environment(container))
    if pod.get("enableServiceLinks", True):
        yield "enableServiceLinks: would fill the environment with every Service's address"


def accounts(world: World, pod: Object) -> Faults:
    """Each pod has an account of ours; only the driver's has a token, to talk to the API server."""
    name = pod.get("serviceAccountName", "default")
    if world.get("ServiceAccount", name) is None:
        yield f"serviceAccountName: no ServiceAccount {name}"
    token = pod.get(ACCOUNT, (world.get("ServiceAccount", name) or {}).get(ACCOUNT, True))
    if token != (name == "driver"):
        yield f"{ACCOUNT}: {token} for account {name}"


def pod_security(pod: Object) -> Faults:
    """The restricted pod security standard, as user 1000."""
    context = pod.get("securityContext") or {}
    if not context.get("runAsNonRoot"):
        yield "securityContext: runAsNonRoot"
    keys = ("runAsUser", "runAsGroup", "fsGroup")
    if any(key in context for key in keys):  # none: OpenShift chooses
        for key in keys:
            if context.get(key) != 1000:
                yield f"securityContext: {key}: the images and the volume belong to 1000"
    if (context.get("seccompProfile") or {}).get("type") != "RuntimeDefault":
        yield "securityContext: seccompProfile"
    yield from unknown(context, "fsGroupChangePolicy", ("OnRootMismatch", "Always"))


def lost_nodes(pod: Object) -> Faults:
    """A node that is gone is given up soon; the default is five minutes."""
    for key in ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"):
        found = [t for t in pod.get("tolerations", []) if t.get("key") == key]
        if [t.get("tolerationSeconds") for t in found] != [30]:
            yield f"tolerations: {key}: 30 seconds"


def container_security(container: Object) -> Faults:
    """No privilege, nothing written outside of volumes."""
    context = container.get("securityContext") or {}
    if context.get("allowPrivilegeEscalation", True):
        yield "securityContext: allowPrivilegeEscalation"
    if not context.get("readOnlyRootFilesystem"):
        yield "securityContext: readOnlyRootFilesystem"
    if (context.get("capabilities") or {}).get("drop") != ["ALL"]:
        yield "securityContext: capabilities: drop ALL"
    policies = ("File", "FallbackToLogsOnError")
    yield from unknown(container, "terminationMessagePolicy", policies)
    yield from unknown(container, "imagePullPolicy", ("Always", "IfNotPresent", "Never"))
    if not re.fullmatch(r"[a-z0-9][a-z0-9._/:@-]*[:@][\w.:-]+", container.get("image", "")):
        yield f"image: {container.get('image')}: a name and a tag or digest"
    if container.get("image", "").endswith(":latest"):
        yield "image: latest is another one tomorrow"


def resources(pod: Object, container: Object) -> Faults:
    """Quantities that can be read; requests within limits; GPUs as the API wants them."""
    held = container.get("resources") or {}
    requests, limits = held.get("requests") or {}, held.get("limits") or {}
    for where, amounts in (("requests", requests), ("limits", limits)):
        for name, amount in amounts.items():
            if quantity(amount) is None:
                yield f"resources.{where}.{name}: {amount}: no quantity"
                return
    for name in ("cpu", "memory", "ephemeral-storage"):
        if name not in requests:
            yield f"resources.requests.{name}: not said"
    for name in requests.keys() & limits.keys():
        if (quantity(requests[name]) or 0) > (quantity(limits[name]) or 0):
            yield f"resources: {name}: requests above limits"
    if (quantity(requests.get("memory", "0")) or 0) < 2**28:
        yield "resources.requests.memory: less than Python needs"
    if requests.get(GPU) != limits.get(GPU) or not str(limits.get(GPU, "1")).isdecimal():
        yield f"resources: {GPU}: requests equal limits, whole numbers"
    if GPU in limits:
        yield from gpu_pod(pod, container)


def gpu_pod(pod: Object, container: Object) -> Faults:
    """What pods on GPU nodes need."""
    tolerated = {t.get("key") for t in pod.get("tolerations", [])}
    if GPU not in tolerated:
        yield "tolerations: GPU nodes are tainted"
    for toleration in pod.get("tolerations", []):
        yield from unknown(toleration, "operator", ("Exists", "Equal"))
        yield from unknown(toleration, "effect", ("NoSchedule", "NoExecute", "PreferNoSchedule"))
        if toleration.get("operator") == "Exists" and "value" in toleration:
            yield "tolerations: Exists has no value"
    shared = {m["name"] for m in container["volumeMounts"] if m["mountPath"] == "/dev/shm"}
    memory = {v["name"] for v in pod["volumes"] if (v.get("emptyDir") or {}).get("medium") == "Memory"}
    if not shared & memory:
        yield "volumes: no memory at /dev/shm, where NCCL and data workers meet"


def environment(world: World, container: Object) -> Faults:
    """References that resolve; variables that are there when they are used."""
    known: set[str] = set()
    kinds = [kind for entry in container.get("envFrom", []) for kind in entry]
    if kinds not in (["configMapRef"], ["configMapRef", "secretRef"]):
        yield f"envFrom: {kinds}: one ConfigMap of the user's, and a Secret where he says so"
    for entry in container.get("envFrom", []):
        for reference in entry.values():
            if not reference.get("optional"):
                yield f"envFrom: {reference['name']}: nobody has to have it"
    for entry in container.get("env", []):
        name = entry["name"]
        if name in known:
            yield f"env {name}: twice"
        for used in re.findall(r"\$\(([^)]*)\)", entry.get("value", "")):
            if used not in known:
                yield f"env {name}: $({used}) is not defined before"
        known.add(name)
        source = entry.get("valueFrom") or {}
        if ("value" in entry) == bool(source):
            yield f"env {name}: value or valueFrom"
        reference = source.get("configMapKeyRef")
        if reference and not reference.get("optional"):
            held = world.get("ConfigMap", reference["name"])
            if held is None or reference["key"] not in held["data"]:
                yield f"env {name}: no key {reference['key']} in ConfigMap {reference['name']}"
        if "secretKeyRef" in source and not source["secretKeyRef"].get("optional"):
            yield f"env {name}: a secret that nobody has to have"
        field = (source.get("resourceFieldRef") or {}).get("resource", "")
        amounts = container["resources"].get(field.partition(".")[0], {})
        if field and field.partition(".")[2] not in amounts:
            yield f"env {name}: the container has no {field}"
    for word in [*container.get("command", []), *container.get("args", [])]:
        for used in re.findall(r"\$\(([^)]*)\)", word):
            if used not in known:
                yield f"args: $({used}) is not defined"


def volumes(world: World, pod: Object) -> Faults:
    """Volumes of objects that are there."""
    seen: set[str] = set()
    for volume in pod.get("volumes", []):
        name = volume["name"]
        if name in seen:
            yield f"volumes: {name} twice"
        seen.add(name)
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim and world.get("PersistentVolumeClaim", claim) is None:
            yield f"volumes: {name}: no PersistentVolumeClaim {claim}"
        source = volume.get("configMap")
        held = world.get("ConfigMap", source["name"]) if source else None
        if source and held is None:
            yield f"volumes: {name}: no ConfigMap {source['name']}"
        for item in (source or {}).get("items", []):
            if held and item["key"] not in held["data"]:
                yield f"volumes: {name}: no key {item['key']}"
        scratch = volume.get("emptyDir") or {}
        yield from unknown(scratch, "medium", ("", "Memory", "HugePages"))
        if "sizeLimit" in scratch and quantity(scratch["sizeLimit"]) is None:
            yield f"volumes: {name}: sizeLimit {scratch['sizeLimit']}"
        if len(volume) != 2:
            yield f"volumes: {name}: one source"


def mounts(pod: Object, container: Object) -> Faults:
    """Every mount has a volume; the read-only root leaves places to write."""
    named = {volume["name"]: volume for volume in pod.get("volumes", [])}
    held = container.get("volumeMounts", [])
    paths = [mount["mountPath"] for mount in held]
    for mount in held:
        if mount["name"] not in named:
            yield f"volumeMounts: no volume {mount['name']}"
        if not mount["mountPath"].startswith("/"):
            yield f"volumeMounts: {mount['mountPath']}: not absolute"
    if len(set(paths)) < len(paths):
        yield "volumeMounts: two at one place"
    for name in named.keys() - {mount["name"] for mount in held}:
        yield f"volumes: {name}: mounted nowhere"
    writable = [m["mountPath"] for m in held if not m.get("readOnly") and "configMap" not in named.get(m["name"], {})]
    if "/tmp" not in writable:
        yield "volumeMounts: /tmp cannot be written"
    home = {e["name"]: e.get("value", "") for e in container.get("env", [])}.get("HOME", "/")
    if home not in writable:
        yield f"env HOME={home}: cannot be written"
    limit = quantity((container["resources"].get("limits") or {}).get("memory", "1Ti")) or 0
    in_memory = sum(
        quantity(v["emptyDir"].get("sizeLimit", "1Ti")) or 0
        for v in named.values()
        if (v.get("emptyDir") or {}).get("medium") == "Memory"
    )
    if in_memory >= limit:
        yield "volumes: files in memory count against the container's memory limit"


def probes(stage: str, container: Object) -> Faults:
    """The liveness probe looks where the ranks leave their signs of life."""
    probe = container.get("livenessProbe")
    if not probe:
        if stage.partition("-")[0] in ("train", "prepare", "evaluate"):
            yield "livenessProbe: nobody sees a frozen process"
        return
    words = (probe.get("exec") or {}).get("command") or []
    home = {e["name"]: e.get("value") for e in container.get("env", [])}.get("BERT_HEARTBEAT")
    if "pipeline.common.heartbeat" not in words or home not in words:
        yield f"livenessProbe: does not look into BERT_HEARTBEAT={home}"
    for key in ("periodSeconds", "timeoutSeconds"):
        if probe.get(key, 1) < 10:
            yield f"livenessProbe: {key}: Python needs seconds to start"


def parts(job: Object, known: dict[str, str]) -> Faults:
    """Work that is shared out over pods is shared over as many as there are."""
    completions = job["spec"].get("completions", 1)
    if "BERT_PARTS" in known and number(known["BERT_PARTS"]) != completions:
        yield f"env BERT_PARTS={known['BERT_PARTS']}: completions is {completions}"
    if "BERT_NODES" in known and number(known["BERT_NODES"]) != completions:
        yield f"env BERT_NODES={known['BERT_NODES']}: completions is {completions}"
