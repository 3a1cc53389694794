"""The kubelet of the small cluster: each pod's real command, in namespaces of its own.

A pod gets a network namespace on a bridge, a mount namespace over the image's files (this machine's
own, unless an image is given), its volumes, the Service's names in its hosts file, its user, no
capabilities, and a read-only root, all as its manifest says. Not done: limits of CPU and memory,
network policies, probes.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from loopback_jobs import ended, set_condition
from loopback_script import Image, Script, host_name
from loopback_store import Object, Refused, Store, matches, now

TAIL = 2048  # bytes of a log that become a termination message


def sh(*words: str) -> None:
    """Run a command that has to succeed."""
    subprocess.run(words, check=True, capture_output=True)


@dataclass
class Sandbox:
    """A pod on this machine."""

    pod: Object
    folder: Path  # a tmpfs of its own
    network: str
    address: str
    process: subprocess.Popen[bytes] | None = None
    told: float | None = None  # when it was told to end
    killed: bool = False

    def signal(self, number: int) -> None:
        """Signal the process that is number 1 inside; with it all others end."""
        assert self.process is not None
        self.killed |= number == signal.SIGKILL
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with contextlib.suppress(OSError, IndexError, ValueError):
            os.kill(int(children.read_text().split()[0]), number)


class Kubelet(threading.Thread):
    """Runs the store's pods on `nodes` hosts, until stopped."""

    def __init__(self, store: Store, folder: Path, images: dict[str, Image], nodes: int = 2):
        super().__init__(daemon=True)
        self.store, self.folder, self.images = store, folder, images
        self.tag = f"k{os.getpid() % 100000}"
        self.subnet = f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.nodes = [f"node-{index}" for index in range(nodes)]
        self.sandboxes: dict[str, Sandbox] = {}  # by uid of the pod
        self.stopping = threading.Event()
        self.error = ""  # the trace that ended this thread
        self.unnamed: set[str] = set()  # host names that the Service does not tell yet
        self.server: dict[str, str] = {}  # KUBERNETES_SERVICE_HOST and _PORT
        self.authority = ""  # certificate of the API server
        self.tokens: dict[str, str] = {}  # by service account
        self._numbers = itertools.count(2)
        # An address of its own: else the bridge takes a port's, and changes it as pods come and go.
        mac = f"02:00:{':'.join(f'{byte:02x}' for byte in os.getpid().to_bytes(4, 'big'))}"
        sh("ip", "link", "add", self.tag, "address", mac, "type", "bridge")
        sh("ip", "address", "add", f"{self.subnet}.1/24", "dev", self.tag)
        sh("ip", "link", "set", self.tag, "up")

    @property
    def address(self) -> str:
        """This machine's address on the pods' network."""
        return f"{self.subnet}.1"

    def run(self) -> None:
        """Look at everything, often."""
        while not self.stopping.wait(0.05):
            for pod in self.store.find("pods"):
                try:
                    self.sync(pod)
                except Refused:
                    continue  # deleted meanwhile
                except Exception:
                    self.error = traceback.format_exc()
                    raise

    def stop(self) -> None:
        """End all pods and take the network away."""
        self.stopping.set()
        self.join()
        for sandbox in list(self.sandboxes.values()):
            self.dispose(sandbox)
        subprocess.run(["ip", "link", "delete", self.tag], check=False, capture_output=True)

    def sync(self, pod: Object) -> None:
        """Take one pod one step further."""
        sandbox = self.sandboxes.get(pod["metadata"]["uid"])
        if ended(pod):
            return
        if sandbox is None:
            if "deletionTimestamp" in pod["metadata"]:
                self.finish(pod, 143, "")
            elif (node := self.place(pod)) is not None:
                self.begin(pod, node)
            return
        assert sandbox.process is not None
        code = sandbox.process.poll()
        if code is not None:
            if sandbox.killed:
                code = 137  # `unshare` does not tell
            self.dispose(sandbox)
            log = self.log_of(pod["metadata"]["namespace"], pod["metadata"]["name"])
            self.finish(pod, code if code >= 0 else 128 - code, log.read_text(errors="replace"))
        elif "deletionTimestamp" in pod["metadata"]:
            self.end(sandbox, pod["metadata"]["deletionGracePeriodSeconds"])
        self.name_all()

    def place(self, pod: Object) -> str | None:
        """A node that the pod's anti-affinity allows."""
        terms = pod["spec"].get("affinity", {}).get("podAntiAffinity", {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution", []
        )  # fmt: skip
        others = [p for p in self.store.find("pods") if not ended(p) and p["spec"].get("nodeName")]
        for node in self.nodes:
            if not any(
                matches(other["metadata"]["labels"], term["labelSelector"]["matchLabels"])
                for term in terms
                for other in others
                if other["spec"]["nodeName"] == node
            ):
                return node
        return None

    def log_of(self, namespace: str, pod: str) -> Path:
        """Where a pod's output goes."""
        return self.folder / f"{namespace}.{pod}.log"

    def begin(self, pod: Object, node: str) -> None:
        """Make the sandbox, and start the command in it."""
        number = next(self._numbers)
        network = f"{self.tag}-{number}"
        address = f"{self.subnet}.{number % 250 + 2}"
        sandbox = Sandbox(pod, self.folder / network, network, address)
        sh("ip", "netns", "add", network)
        end = f"{self.tag[-6:]}e{number}"
        sh("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", network)
        sh("ip", "link", "set", end, "master", self.tag, "up")
        sh("ip", "-n", network, "address", "add", f"{address}/24", "dev", "eth0")
        sh("ip", "-n", network, "link", "set", "eth0", "up")
        sh("ip", "-n", network, "link", "set", "lo", "up")
        sandbox.folder.mkdir()
        sh("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(sandbox.folder))
        image = self.images[pod["spec"]["containers"][0]["image"]]
        script = Script(self.store, pod, image, sandbox.folder, self).text()
        metadata = pod["metadata"]
        with self.log_of(metadata["namespace"], metadata["name"]).open("wb") as log:
            sandbox.process = subprocess.Popen(
                ["ip", "netns", "exec", network, "unshare", "--mount", "--uts", "--ipc", "--pid",
                 "--fork", "--kill-child", "sh", "-c", script],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={}, start_new_session=True, cwd="/",
            )  # fmt: skip
        self.sandboxes[metadata["uid"]] = sandbox

        def started(new: Object) -> None:
            new["spec"]["nodeName"] = node
            new["status"] |= {"phase": "Running", "podIP": address, "startTime": now()}
            set_condition(new, "Ready", True)

        self.store.change("pods", metadata["namespace"], metadata["name"], started)
        self.name_all()

    def name_all(self) -> None:
        """Write every pod's hosts file: the names behind the headless Services."""
        lines: dict[str, list[str]] = {}
        pods = {p["metadata"]["uid"]: p for p in self.store.find("pods") if not ended(p)}
        for service in self.store.find("services"):
            space, name = service["metadata"]["namespace"], service["metadata"]["name"]
            for uid, sandbox in self.sandboxes.items():
                pod = pods.get(uid)
                if pod is None or pod["spec"].get("subdomain") != name:
                    continue
                host = pod["spec"].get("hostname", "")
                if matches(pod["metadata"]["labels"], service["spec"]["selector"]) and (
                    host not in self.unnamed
                ):
                    full = f"{host}.{name}.{space}.svc.cluster.local"
                    lines.setdefault(space, []).append(
                        f"{sandbox.address} {full} {host}.{name}.{space} {host}.{name}\n"
                    )
        for sandbox in self.sandboxes.values():
            metadata = sandbox.pod["metadata"]
            hosts = sandbox.folder / "hosts"
            if not hosts.parent.exists():
                continue
            own = f"127.0.0.1 localhost\n{sandbox.address} {host_name(sandbox.pod)}\n"
            text = own + "".join(sorted(lines.get(metadata["namespace"], [])))
            if not hosts.exists() or hosts.read_text() != text:
                hosts.write_text(text)  # in place: it is mounted

    def end(self, sandbox: Sandbox, grace: float) -> None:
        """SIGTERM to the first process; SIGKILL when the grace is over."""
        if sandbox.told is None:
            sandbox.told = time.monotonic()
            sandbox.signal(signal.SIGTERM)
        elif time.monotonic() - sandbox.told > grace:
            sandbox.signal(signal.SIGKILL)

    def kill(self, namespace: str, pod: str) -> None:
        """SIGKILL, as when memory is short or a host dies."""
        self.sandboxes[self.store.get("pods", namespace, pod)["metadata"]["uid"]].signal(
            signal.SIGKILL
        )

    def cut(self, namespace: str, pod: str, up: bool = False) -> None:
        """Take the pod's link down, or up again."""
        sandbox = self.sandboxes[self.store.get("pods", namespace, pod)["metadata"]["uid"]]
        sh("ip", "-n", sandbox.network, "link", "set", "eth0", "up" if up else "down")

    def dispose(self, sandbox: Sandbox) -> None:
        """Take a pod's namespaces and files away."""
        assert sandbox.process is not None
        sandbox.signal(signal.SIGKILL)  # `unshare --kill-child` ends with the change of user
        sandbox.process.kill()
        sandbox.process.wait()
        subprocess.run(["umount", "-l", sandbox.folder], check=False, capture_output=True)
        with contextlib.suppress(OSError):
            sandbox.folder.rmdir()
        subprocess.run(["ip", "netns", "delete", sandbox.network], check=False, capture_output=True)
        self.sandboxes.pop(sandbox.pod["metadata"]["uid"], None)

    def finish(self, pod: Object, code: int, log: str) -> None:
        """Write a pod's end into its status."""
        container = pod["spec"]["containers"][0]
        words = ""
        if code and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            words = log[-TAIL:]
        terminated = {
            "exitCode": code, "reason": "Error" if code else "Completed", "message": words,
            "finishedAt": now(),
        }  # fmt: skip

        def over(new: Object) -> None:
            new["status"]["phase"] = "Failed" if code else "Succeeded"
            new["status"]["containerStatuses"] = [
                {"name": container["name"], "image": container["image"], "imageID": "",
                 "ready": False, "restartCount": 0, "state": {"terminated": terminated}}
            ]  # fmt: skip
            set_condition(new, "Ready", False)

        self.store.change("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], over)
