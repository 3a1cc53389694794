"""A cluster of this machine's own for tests: a real control plane, and pods as processes."""

import json
import shutil
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.k8s.api import condition
from tests.k8s.control_plane import KUBECTL, ControlPlane
from tests.k8s.kubelet import Kubelet, Network

NAMESPACE = "bert"
BUSY = 3.0  # times as long as on an idle machine may all take


class Logs(BaseHTTPRequestHandler):
    """What `kubectl logs` reads: /containerLogs/NAMESPACE/POD/CONTAINER of the kubelet."""

    folder: Path

    def do_GET(self):
        _, _, namespace, pod, *_ = self.path.partition("?")[0].split("/")
        text = (self.folder / f"{namespace}.{pod}.log").read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words):
        """Say nothing."""


class Cluster:
    """The parts together, and the words of a user: `kubectl`, `wait`."""

    def __init__(self, folder, images):
        self.folder = folder
        folder.chmod(0o755)
        self.network = Network()
        self.control = ControlPlane(folder, self.network.address)
        self.api = self.control.api()
        self.kubelet = Kubelet(self.control.api(), self.network, folder, images)
        self.kubelet.server = {
            "KUBERNETES_SERVICE_HOST": self.control.address,
            "KUBERNETES_SERVICE_PORT": str(self.control.port),
        }
        handler = type("Handler", (Logs,), {"folder": folder})
        self.logs = ThreadingHTTPServer((self.network.address, 0), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.control.certificate, self.control.key)
        self.logs.socket = context.wrap_socket(self.logs.socket, server_side=True)
        self.kubelet.port = self.logs.server_port
        self.config = self.control.configuration("administrator", NAMESPACE)

    def start(self):
        """All at work."""
        self.control.start()
        self.control.namespace(NAMESPACE)
        self.kubelet.register(self.kubelet.nodes)
        self.kubelet.start()
        threading.Thread(target=self.logs.serve_forever, daemon=True).start()
        return self

    def stop(self):
        """All at rest, and nothing left behind."""
        if self.kubelet.is_alive() or self.kubelet.error:
            self.kubelet.stop()
            self.logs.shutdown()
        self.logs.server_close()
        self.control.stop()
        self.network.close()

    def kubectl(self, *words, check=True):
        """What kubectl prints."""
        command = [KUBECTL, f"--kubeconfig={self.config}", f"--cache-dir={self.folder}/cache", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def claim(self):
        """The volume's files."""
        return self.folder / f"claim-{NAMESPACE}-pretrain"

    def forget(self, path):
        """Remove files of the volume, and the logs so far."""
        shutil.rmtree(self.claim / path, ignore_errors=True)
        for log in self.folder.glob("*.log"):
            log.unlink()

    def apply(self, manifest, *words):
        """What `kubectl apply` says of it."""
        path = self.folder / "manifest.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", **manifest}))
        return self.kubectl("apply", "-f", str(path), *words)

    def job(self, name):
        """A Job as it is now."""
        return self.api.get("jobs", NAMESPACE, name)

    def pods(self, job):
        """A Job's pods, the oldest first."""
        return self.api.find("pods", NAMESPACE, {"batch.kubernetes.io/job-name": job})

    def running(self, job):
        """The names of a Job's pods that run."""
        return [pod["metadata"]["name"] for pod in self.pods(job) if pod["status"]["phase"] == "Running"]

    def log(self, name):
        """What the pods of a Job, or one pod, have said; those that are deleted too."""
        paths = sorted(self.folder.glob(f"{NAMESPACE}.{name}*.log"), key=lambda p: p.stat().st_ctime)
        return "".join(path.read_text(errors="replace") for path in paths)

    def wait(self, what, seconds, story="driver"):
        """Until something is so."""
        until = time.monotonic() + BUSY * seconds
        while not what():
            self.control.check()
            assert not self.kubelet.error, self.kubelet.error
            if time.monotonic() > until:
                seen = self.kubectl("get", "jobs,pods,events")
                raise AssertionError(f"{seen}\n{self.log('driver')}\n{self.log(story)}")
            time.sleep(0.2)

    def is_over(self, job):
        """Complete or Failed; empty while neither, or not made yet."""
        found = [one for one in self.api.find("jobs", NAMESPACE) if one["metadata"]["name"] == job]
        return next((kind for one in found for kind in ("Complete", "Failed") if condition(one, kind)), "")

    def evict(self, pod):
        """The eviction API, which asks the disruption budget."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
        self.api.create("pods", NAMESPACE, eviction, "eviction")
