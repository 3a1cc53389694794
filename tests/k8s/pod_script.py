"""A pod's manifest as the shell script that turns fresh namespaces into that pod."""

import base64
import json
import os
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.k8s.api import Refused


@dataclass(frozen=True)
class Image:
    """A file system to run pods in, and what its configuration says."""

    root: Path  # "/" is this machine's own
    environment: dict[str, str]
    entrypoint: list[str]
    binds: dict[str, Path] = field(default_factory=dict)  # mount path -> a folder of this machine
    working_directory: str = "/app"


def host_name(pod):
    """The pod's own host name."""
    return pod["spec"].get("hostname") or pod["metadata"]["name"]


def quantity(text):
    """A resource quantity as a whole number, rounded up."""
    if str(text).endswith("m"):
        return -(-int(text[:-1]) // 1000)
    return int(text)


class Script:
    """The shell script that turns fresh namespaces into a pod's.

    The `host` knows the `folder` of the volumes, and the variables of the `server`.
    """

    def __init__(self, api, pod, image, folder, host):
        self.api, self.pod, self.image, self.folder, self.host = api, pod, image, folder, host
        self.container = pod["spec"]["containers"][0]
        self.space = pod["metadata"]["namespace"]

    def text(self):
        """The script."""
        folder, root = self.folder, self.folder / "root"
        skeleton, upper = folder / "skeleton", folder / "upper"
        for path in (root, skeleton, upper, folder / "work"):
            path.mkdir()
        mounts = self.mounts()
        for target, source in mounts:
            place = skeleton / target.lstrip("/")
            if source.is_file():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
            else:
                place.mkdir(parents=True, exist_ok=True)
        if self.image.root == Path("/"):
            (skeleton / "root").mkdir(exist_ok=True)  # so that other users see inside
        for path in (skeleton, *skeleton.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        locked = self.container.get("securityContext", {}).get("readOnlyRootFilesystem")
        layers = f"lowerdir={skeleton}:{self.image.root}"
        options = f"ro,{layers}" if locked else f"{layers},upperdir={upper},workdir={folder}/work"
        q = shlex.quote
        lines = [
            "set -e",
            "mount --make-rprivate /",
            f"hostname {q(host_name(self.pod))}",
            f"mount -t overlay -o {options} overlay {root}",
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
            *(
                f"[ -e {root}{target} ] || mkdir -p {root}{target}\nmount --bind {q(str(source))} {root}{target}"
                for target, source in mounts
            ),
            f"exec chroot {root} env -i {self.environment()} {self.privileges()} "
            f"sh -c {q('cd ' + self.place() + ' && exec ' + self.command())}",
        ]
        return "\n".join(lines)

    def place(self):
        """The working directory."""
        return self.container.get("workingDir") or self.image.working_directory

    def privileges(self):
        """`setpriv` as the security contexts say."""
        context = self.pod["spec"].get("securityContext", {})
        own = self.container.get("securityContext", {})
        user, group = context.get("runAsUser", 0), context.get("runAsGroup", 0)
        words = f"setpriv --reuid {user} --regid {group} --groups {context.get('fsGroup', group)}"
        if "ALL" in own.get("capabilities", {}).get("drop", []):
            words += " --bounding-set=-all --inh-caps=-all"
        return words if own.get("allowPrivilegeEscalation", True) else words + " --no-new-privs"

    def command(self):
        """What runs: `command` replaces the image's entry, `args` follow it."""
        words = self.container.get("command") or self.image.entrypoint
        arguments = self.container.get("args", [])
        known = {**self.image.environment, **self.variables()}
        return shlex.join(expand(word, known) for word in [*words, *arguments])

    def environment(self):
        """All variables, for `env`."""
        known = {**self.image.environment, **self.host.server, **self.variables()}
        return " ".join(shlex.quote(f"{name}={value}") for name, value in known.items())

    def variables(self):
        """The container's `envFrom` and `env`, resolved in their order."""
        found = {"HOSTNAME": host_name(self.pod)}
        for entry in self.container.get("envFrom", []):
            ((kind, what),) = entry.items()
            try:
                found |= self.held("configmaps" if kind == "configMapRef" else "secrets", what)
            except Refused:
                if not what.get("optional"):
                    raise
        for entry in self.container.get("env", []):
            value = entry.get("value")
            if "valueFrom" in entry:
                value = self.value_from(entry["valueFrom"])
            if value is not None:
                found[entry["name"]] = expand(value, found)
        return found

    def value_from(self, source):
        """One `valueFrom`; None for an optional one that is not there."""
        ((kind, what),) = source.items()
        if kind == "fieldRef":
            key = re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", what["fieldPath"])
            metadata = self.pod["metadata"]
            return str(metadata[key[1]][key[2]] if key else metadata[what["fieldPath"][9:]])
        if kind == "resourceFieldRef":
            where, name = what["resource"].split(".")
            return str(quantity(self.container["resources"][where][name]))
        try:
            found = self.held("configmaps" if kind == "configMapKeyRef" else "secrets", what)
            return found[what["key"]]
        except (Refused, KeyError):
            if what.get("optional"):
                return None
            raise

    def held(self, kind, what):
        """What a ConfigMap or a Secret holds."""
        data = self.api.get(kind, self.space, what["name"]).get("data", {})
        if kind == "configmaps":
            return data
        return {name: base64.b64decode(value).decode() for name, value in data.items()}

    def mounts(self):
        """(place inside, what is mounted there)."""
        folder, spec = self.folder, self.pod["spec"]
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        hosts = folder / "hosts"
        hosts.touch()
        found = [("/etc/hosts", hosts)]
        owner = spec.get("securityContext", {}).get("fsGroup", 0)
        for mount in self.container.get("volumeMounts", []):
            source = self.volume(volumes[mount["name"]])
            os.chown(source, -1, owner)
            written = not {"configMap", "projected"} & volumes[mount["name"]].keys()
            source.chmod(0o2775 if written else 0o755)
            found.append((mount["mountPath"], source))
        return [*found, *self.image.binds.items()]  # last: a volume may be mounted above one

    def volume(self, volume):
        """The folder of a volume."""
        if "persistentVolumeClaim" in volume:
            name = volume["persistentVolumeClaim"]["claimName"]
            self.api.get("persistentvolumeclaims", self.space, name)
            path = self.host.folder / f"claim-{self.space}-{name}"
        else:
            path = self.folder / f"volume-{volume['name']}"
        path.mkdir(exist_ok=True)
        if "configMap" in volume:
            self.write(path, volume["configMap"])
        for source in volume.get("projected", {}).get("sources", []):
            if "configMap" in source:
                self.write(path, source["configMap"])
            elif "serviceAccountToken" in source:
                (path / source["serviceAccountToken"]["path"]).write_text(self.token())
            else:
                for item in source["downwardAPI"]["items"]:
                    text = self.value_from({"fieldRef": item["fieldRef"]})
                    (path / item["path"]).write_text(str(text))
        return path

    def write(self, path, source):
        """A ConfigMap's entries as files."""
        data = self.held("configmaps", source)
        for item in source["items"]:
            (path / item["path"]).write_text(data[item["key"]])

    def token(self):
        """A token of the pod's account, as the kubelet asks for it."""
        account = {"metadata": {"name": self.pod["spec"]["serviceAccountName"]}}
        about = self.pod["metadata"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": about["name"], "uid": about["uid"]}
        item = {**account, "spec": {"boundObjectRef": bound}}
        answer = self.api.create("serviceaccounts", self.space, item, "token")
        return str(answer["status"]["token"])


def expand(text, known):
    """`$(NAME)` of a manifest."""
    return re.sub(r"\$\((\w+)\)", lambda found: known.get(found[1], found[0]), text)


def this_machine(repository, python):
    """An image that is this machine: its Python's environment, the working tree at /app."""
    tini = ["tini", "-g", "--"] if shutil.which("tini") else []
    path = f"{python.parent}:/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": path, "PYTHONPATH": "/app", "OMP_NUM_THREADS": "1"}
    environment_folder = python.parent.parent  # below /tmp, say, where pods have a volume
    binds = {"/app": repository, str(environment_folder): environment_folder}
    return Image(Path("/"), environment, tini, binds)


def image_of(root, configuration):
    """A built image: its file system, and its OCI configuration as JSON."""
    config = json.loads(configuration)
    environment = dict(entry.split("=", 1) for entry in config.get("Env", []))
    return Image(root, environment, config.get("Entrypoint") or [], working_directory=config.get("WorkingDir") or "/")
