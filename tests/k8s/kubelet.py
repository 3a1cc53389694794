"""The kubelet of the test cluster: each pod's real command, in namespaces of its own.

A pod gets a network namespace on a bridge, a mount namespace over the image's files (this machine's
own, unless an image is given), its volumes, the Service's names in its hosts file, its user, no
capabilities, and a read-only root, all as its manifest says. Not done: limits of CPU and memory,
network policies, probes, `kubectl exec`.
"""

import contextlib
import datetime
import itertools
import os
import shlex
import signal
import subprocess
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from tests.k8s.api import Refused, ended
from tests.k8s.pod_script import Script, host_name

TAIL = 2048  # bytes of a log that become a termination message
HEARTBEAT = 3.0  # seconds between a node's signs of life
CAPACITY = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1000Gi", "pods": "110"}


def sh(*words):
    """Run a command that has to succeed."""
    subprocess.run(words, check=True, capture_output=True)


def now():
    """Return the time as the API writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Sandbox:
    """A pod on this machine."""

    pod: dict
    folder: Path  # a tmpfs of its own
    network: str
    address: str
    process: subprocess.Popen[bytes] | None = None
    asked: float | None = None  # when it was asked to end
    killed: bool = False

    def signal(self, number):
        """Signal the process that is number 1 inside; with it all others end."""
        self.killed |= number == signal.SIGKILL
        with contextlib.suppress(OSError, IndexError, ValueError):
            os.kill(self.first(), number)

    def first(self):
        """Return this machine's number of the process that is number 1 inside."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        while not (found := children.read_text().split()) and self.process.poll() is None:
            time.sleep(0.05)  # it is about to be forked
        return int(found[0])


class Network:
    """A bridge of this machine, and the pods' ends on it."""

    def __init__(self):
        self.tag = f"k{os.getpid() % 100000}"
        self.subnet = f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.address = f"{self.subnet}.1"  # of this machine
        self._numbers = itertools.count(2)
        # An address of its own: else the bridge takes a port's, and changes it as pods come and go.
        mac = f"02:00:{':'.join(f'{byte:02x}' for byte in os.getpid().to_bytes(4, 'big'))}"
        sh("ip", "link", "add", self.tag, "address", mac, "type", "bridge")
        sh("ip", "address", "add", f"{self.subnet}.1/24", "dev", self.tag)
        sh("ip", "link", "set", self.tag, "up")

    def join(self):
        """Return the name of a new network namespace on the bridge, and its address."""
        number = next(self._numbers)
        network, address = f"{self.tag}-{number}", f"{self.subnet}.{number % 250 + 2}"
        end = f"{self.tag[-6:]}e{number}"
        sh("ip", "netns", "add", network)
        sh("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", network)
        sh("ip", "link", "set", end, "master", self.tag, "up")
        sh("ip", "-n", network, "address", "add", f"{address}/24", "dev", "eth0")
        sh("ip", "-n", network, "link", "set", "eth0", "up")
        sh("ip", "-n", network, "link", "set", "lo", "up")
        return network, address

    def close(self):
        """Take the bridge away."""
        subprocess.run(["ip", "link", "delete", self.tag], check=False, capture_output=True)


class Kubelet(threading.Thread):
    """Runs the pods that the scheduler gives to its `nodes`, until stopped."""

    def __init__(self, api, network, folder, images, nodes=3):
        super().__init__(daemon=True)
        self.api, self.network, self.folder, self.images = api, network, folder, images
        self.nodes = [f"node-{index}" for index in range(nodes)]
        self.dead: set[str] = set()  # nodes that say nothing any more
        self.sandboxes: dict[str, Sandbox] = {}  # by uid of the pod
        self.stopping = threading.Event()
        self.error = ""  # the trace that ended this thread
        self.unnamed: set[str] = set()  # host names that the Service does not give yet
        self.server: dict[str, str] = {}  # KUBERNETES_SERVICE_HOST and _PORT
        self.port = 0  # where logs are served
        self._alive = 0.0

    def register(self, nodes):
        """Create Nodes; the first signs of life follow."""
        for node in nodes:
            labels = {"kubernetes.io/hostname": node, "topology.kubernetes.io/zone": "a"}
            with contextlib.suppress(Refused):
                item = {"metadata": {"name": node, "labels": labels}}
                self.api.create("nodes", None, item)
            spec = {"holderIdentity": node, "leaseDurationSeconds": 40}
            with contextlib.suppress(Refused):
                lease = {"metadata": {"name": node}, "spec": spec}
                self.api.create("leases", "kube-node-lease", lease)

    def beat(self):
        """Say that the nodes are well."""
        if time.monotonic() - self._alive < HEARTBEAT:
            return
        self._alive = time.monotonic()
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        for node in self.nodes:
            if node in self.dead:
                continue
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()}
            status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [ready]}
            status["addresses"] = [{"type": "InternalIP", "address": self.network.address}]
            status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self.port}}
            with contextlib.suppress(Refused):
                self.api.patch("nodes", None, node, {"status": status}, "status")
                self.api.patch("leases", "kube-node-lease", node, {"spec": {"renewTime": stamp}})

    def run(self):
        """Look at everything, often."""
        try:
            while not self.stopping.wait(0.1):
                self.beat()
                pods = self.api.find("pods")
                for pod in pods:
                    if pod["spec"].get("nodeName") in set(self.nodes) - self.dead:
                        with contextlib.suppress(Refused):  # deleted meanwhile
                            self.sync(pod)
                self.forget({pod["metadata"]["uid"] for pod in pods})
                self.name_all(pods)
        except Exception:
            self.error = traceback.format_exc()
            raise

    def stop(self):
        """End all pods."""
        self.stopping.set()
        self.join()
        for sandbox in list(self.sandboxes.values()):
            self.dispose(sandbox)

    def sync(self, pod):
        """Take one pod one step further."""
        sandbox = self.sandboxes.get(pod["metadata"]["uid"])
        leaves = "deletionTimestamp" in pod["metadata"]
        if ended(pod):
            if leaves:
                self.release(pod)
        elif sandbox is None:
            if leaves:
                self.finish(pod, 143, "")
            else:
                self.begin(pod)
        else:
            code = sandbox.process.poll()
            if code is not None:
                code = 137 if sandbox.killed else code  # `unshare` does not pass it on
                self.dispose(sandbox)
                log = self.log_of(pod).read_text(errors="replace")
                self.finish(pod, code if code >= 0 else 128 - code, log)
            elif leaves:
                self.end(sandbox, pod["metadata"]["deletionGracePeriodSeconds"])

    def forget(self, known):
        """Take away what was left of pods that were deleted by force."""
        for uid, sandbox in list(self.sandboxes.items()):
            if uid not in known:
                self.dispose(sandbox)

    def log_of(self, pod):
        """Return where a pod's output goes."""
        return self.folder / f"{pod['metadata']['namespace']}.{pod['metadata']['name']}.log"

    def begin(self, pod):
        """Make the sandbox, and start the command in it."""
        image = self.images[pod["spec"]["containers"][0]["image"]]
        network, address = self.network.join()
        sandbox = Sandbox(pod, self.folder / network, network, address)
        sandbox.folder.mkdir()
        sh("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(sandbox.folder))
        script = Script(self.api, pod, image, sandbox.folder, self).text()
        with self.log_of(pod).open("wb") as log:
            sandbox.process = subprocess.Popen(
                [
                    *shlex.split(f"ip netns exec {network} unshare --mount --uts --ipc --pid --fork"),
                    *shlex.split("--kill-child sh -c"),
                    script,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={},
                start_new_session=True,
                cwd="/",
            )
        self.sandboxes[pod["metadata"]["uid"]] = sandbox
        state = {"running": {"startedAt": now()}}
        self.report(pod, "Running", state, True, podIP=address, podIPs=[{"ip": address}], startTime=now())

    def report(self, pod, phase, state, ready, **more):
        """Write a pod's status."""
        container, stamp = pod["spec"]["containers"][0], now()
        kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
        status = {
            "phase": phase,
            **more,
            "conditions": [{"type": kind, "status": str(ready), "lastTransitionTime": stamp} for kind in kinds],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": ready,
                    "started": ready,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        metadata = pod["metadata"]
        self.api.patch("pods", metadata["namespace"], metadata["name"], {"status": status}, "status")

    def name_all(self, pods):
        """Write every pod's hosts file: the names behind the headless Services."""
        if not self.sandboxes:
            return
        lines = {}
        live = {pod["metadata"]["uid"]: pod for pod in pods if not ended(pod)}
        for service in self.api.find("services"):
            space, name = service["metadata"]["namespace"], service["metadata"]["name"]
            for uid, sandbox in self.sandboxes.items():
                pod = live.get(uid)
                if pod is None or pod["spec"].get("subdomain") != name:
                    continue
                host, wanted = pod["spec"].get("hostname", ""), service["spec"]["selector"]
                if wanted.items() <= pod["metadata"]["labels"].items() and (host not in self.unnamed):
                    full = f"{host}.{name}.{space}.svc.cluster.local"
                    lines.setdefault(space, []).append(
                        f"{sandbox.address} {full} {host}.{name}.{space} {host}.{name}\n"
                    )
        for sandbox in self.sandboxes.values():
            hosts = sandbox.folder / "hosts"
            if not hosts.parent.exists():
                continue
            own = f"127.0.0.1 localhost\n{sandbox.address} {host_name(sandbox.pod)}\n"
            space = sandbox.pod["metadata"]["namespace"]
            text = own + "".join(sorted(lines.get(space, [])))
            if not hosts.exists() or hosts.read_text() != text:
                hosts.write_text(text)  # in place: it is mounted

    def end(self, sandbox, grace):
        """SIGTERM to the first process; SIGKILL when the grace is over."""
        if sandbox.asked is None:
            sandbox.asked = time.monotonic()
            sandbox.signal(signal.SIGTERM)
        elif time.monotonic() - sandbox.asked > grace:
            sandbox.signal(signal.SIGKILL)

    def kill(self, namespace, pod):
        """SIGKILL, as when memory is short."""
        self._sandbox(namespace, pod).signal(signal.SIGKILL)

    def cut(self, namespace, pod):
        """Take the pod's link down."""
        sh("ip", "-n", self._sandbox(namespace, pod).network, "link", "set", "eth0", "down")

    def enter(self, namespace, pod, *words, given=b""):
        """Return what a command prints inside a pod, run as its user in its working directory."""
        sandbox = self._sandbox(namespace, pod)
        inside = sandbox.first()
        place = sandbox.pod["spec"]["containers"][0].get("workingDir", "/")
        user = str(sandbox.pod["spec"]["securityContext"]["runAsUser"])
        until = time.monotonic() + 60
        while not Path(f"/proc/{inside}/root{place}").exists() and time.monotonic() < until:
            time.sleep(0.1)  # its volumes are being mounted
        enter = shlex.split(f"nsenter --target={inside} --mount --net --pid --root")
        enter += shlex.split(f"setpriv --reuid {user} --regid {user} --clear-groups env -C")
        done = subprocess.run([*enter, place, *words], input=given, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def die(self, node):
        """End a node as a loss of power does: its pods are gone, and nobody says so."""
        self.dead.add(node)
        for sandbox in list(self.sandboxes.values()):
            if sandbox.pod["spec"]["nodeName"] == node:
                sh("ip", "-n", sandbox.network, "link", "set", "eth0", "down")
                sandbox.signal(signal.SIGKILL)

    def revive(self, node):
        """Bring a node back as a new one."""
        self.dead.discard(node)
        self.register([node])

    def _sandbox(self, namespace, pod):
        return self.sandboxes[self.api.get("pods", namespace, pod)["metadata"]["uid"]]

    def dispose(self, sandbox):
        """Take a pod's namespaces and files away."""
        sandbox.signal(signal.SIGKILL)  # `unshare --kill-child` ends with the change of user
        sandbox.process.kill()
        sandbox.process.wait()
        subprocess.run(["umount", "-l", sandbox.folder], check=False, capture_output=True)
        with contextlib.suppress(OSError):
            sandbox.folder.rmdir()
        subprocess.run(["ip", "netns", "delete", sandbox.network], check=False, capture_output=True)
        self.sandboxes.pop(sandbox.pod["metadata"]["uid"], None)

    def finish(self, pod, code, log):
        """Write a pod's end into its status; one that was deleted goes."""
        words = ""
        policy = pod["spec"]["containers"][0].get("terminationMessagePolicy")
        if code and policy == "FallbackToLogsOnError":
            words = log[-TAIL:]
        terminated = {"exitCode": code, "reason": "Error" if code else "Completed", "message": words}
        terminated |= {"startedAt": now(), "finishedAt": now()}
        self.report(pod, "Failed" if code else "Succeeded", {"terminated": terminated}, False)
        if "deletionTimestamp" in pod["metadata"]:
            self.release(pod)

    def release(self, pod):
        """Let the API server forget a pod that has ended."""
        about = pod["metadata"]
        only = {"gracePeriodSeconds": 0, "preconditions": {"uid": about["uid"]}}
        self.api.delete("pods", about["namespace"], about["name"], **only)
