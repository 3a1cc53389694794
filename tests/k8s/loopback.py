"""A cluster of this machine's own for tests: API server, Job controller and kubelet."""

import datetime
import ipaddress
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from loopback_jobs import JobController, condition
from loopback_pods import Image, Kubelet
from loopback_server import ApiServer
from loopback_store import Object, Refused, Store

NAMESPACE = "bert"


def certify(folder: Path, address: str) -> tuple[Path, Path]:
    """A certificate for the API server that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    today = datetime.datetime.now(datetime.UTC)
    identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .add_extension(identity, False)
        .add_extension(
            x509.KeyUsage(True, False, False, False, False, True, True, False, False), True
        )
        .sign(key, hashes.SHA256())
    )
    paths = folder / "server.crt", folder / "server.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


class Cluster:
    """The parts together, and the words of a user: `kubectl`, `wait`."""

    def __init__(self, folder: Path, images: dict[str, Image]):
        self.folder, self.store = folder, Store()
        folder.chmod(0o755)
        self.kubelet = Kubelet(self.store, folder, images)
        certificate, key = certify(folder, self.kubelet.address)
        self.server = ApiServer(self.store, self.kubelet.address, certificate, key)
        self.server.tokens = {"administrator": None, "driver-token": "driver"}
        self.server.logs, self.server.evict = self.kubelet.log_of, self.evict
        self.kubelet.tokens = {"driver": "driver-token"}
        self.kubelet.authority = certificate.read_text()
        self.kubelet.server = {
            "KUBERNETES_SERVICE_HOST": self.server.address,
            "KUBERNETES_SERVICE_PORT": str(self.server.port),
        }
        self.jobs = JobController(self.store)
        self.config = folder / "kubeconfig"
        url = f"https://{self.server.address}:{self.server.port}"
        self.config.write_text(json.dumps(kubeconfig(url, certificate)))

    def start(self) -> "Cluster":
        """All at work."""
        self.server.start()
        self.jobs.start()
        self.kubelet.start()
        return self

    def stop(self) -> None:
        """All at rest, and nothing left behind."""
        self.jobs.stopping.set()
        self.jobs.join()
        self.kubelet.stop()
        self.server.stop()

    def kubectl(self, *words: str, check: bool = True) -> str:
        """What the real kubectl prints."""
        done = subprocess.run(
            ["kubectl", f"--kubeconfig={self.config}", f"--cache-dir={self.folder}/cache", *words],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def claim(self) -> Path:
        """The volume's files."""
        return self.folder / "claim-pretrain"

    def forget(self, path: str) -> None:
        """Remove files of the volume, and the logs so far."""
        shutil.rmtree(self.claim / path, ignore_errors=True)
        for log in self.folder.glob("*.log"):
            log.unlink()

    def apply(self, manifest: Object) -> str:
        """What `kubectl apply` says of it."""
        path = self.folder / "manifest.json"
        path.write_text(json.dumps(manifest))
        return self.kubectl("apply", "-f", str(path))

    def job(self, name: str) -> Object:
        """A Job as it is now."""
        return self.store.get("jobs", NAMESPACE, name)

    def pods(self, job: str) -> list[Object]:
        """A Job's pods, the oldest first."""
        return self.store.find("pods", NAMESPACE, {"job-name": job})

    def running(self, job: str) -> list[str]:
        """The names of a Job's pods that run."""
        return [
            pod["metadata"]["name"]
            for pod in self.pods(job)
            if pod["status"]["phase"] == "Running"
        ]  # fmt: skip

    def log(self, name: str) -> str:
        """What the pods of a Job, or one pod, have said; those that are deleted too."""
        paths = sorted(
            self.folder.glob(f"{NAMESPACE}.{name}*.log"), key=lambda p: p.stat().st_ctime
        )
        return "".join(path.read_text(errors="replace") for path in paths)

    def wait(self, what: Callable[[], object], seconds: float, story: str = "driver") -> None:
        """Until something is so."""
        until = time.monotonic() + seconds
        while not what():
            died = self.kubelet.error + self.jobs.error
            assert not died, died
            assert time.monotonic() < until, (
                f"{self.kubectl('get', 'jobs,pods')}\n{self.log(story)}"
            )
            time.sleep(0.1)

    def is_over(self, job: str) -> str:
        """Complete or Failed; empty while neither."""
        found = self.job(job)
        return next((kind for kind in ("Complete", "Failed") if condition(found, kind)), "")

    def evict(self, namespace: str, name: str) -> None:
        """The eviction API: a budget may refuse; else the pod ends as disrupted."""
        pod = self.store.get("pods", namespace, name)
        for budget in self.store.find("poddisruptionbudgets", namespace):
            labels = budget["spec"]["selector"]["matchLabels"]
            healthy = [
                p for p in self.store.find("pods", namespace, labels) if condition(p, "Ready")
            ]
            mine = any(p["metadata"]["uid"] == pod["metadata"]["uid"] for p in healthy)
            if mine and len(healthy) <= budget["spec"]["minAvailable"]:
                raise Refused(429, "TooManyRequests", "it would violate the disruption budget")
        self.disrupt(pod, "EvictionByEvictionAPI")

    def disrupt(self, pod: Object, reason: str) -> None:
        """Mark a pod as disrupted by the cluster, and delete it."""
        from loopback_jobs import set_condition

        self.store.change(
            "pods", pod["metadata"]["namespace"], pod["metadata"]["name"],
            lambda new: set_condition(new, "DisruptionTarget", True, reason),
        )  # fmt: skip
        self.jobs.delete(pod)


def kubeconfig(url: str, certificate: Path) -> Object:
    """What kubectl and the client library read."""
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "loopback",
        "clusters": [
            {"name": "loopback",
             "cluster": {"server": url, "certificate-authority": str(certificate)}}
        ],
        "users": [{"name": "administrator", "user": {"token": "administrator"}}],
        "contexts": [
            {"name": "loopback",
             "context": {"cluster": "loopback", "user": "administrator", "namespace": NAMESPACE}}
        ],
    }  # fmt: skip
