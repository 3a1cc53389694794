"""A real control plane on this machine: etcd, API server, controllers and scheduler as processes.

`tests/k8s/build-control-plane` builds all but etcd, which is Debian's.
"""

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.k8s.api import Api, Refused
from tests.support.certificates import certify

VERSION = "1.36.3"  # as in build-control-plane
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
PROGRAMS = CACHE / "bert-pipeline" / "k8s" / VERSION
KUBECTL = PROGRAMS / "kubectl"
KUBEFLOW = PROGRAMS.parent / "kubeflow-v2.0.0"  # as in kubeflow/go.mod
START = 180  # seconds for a program to come up on a busy machine
TOKENS = {  # a program's token: its user and groups
    "administrator": ("administrator", "system:masters"),
    "controllers": ("system:kube-controller-manager", "system:masters"),
    "scheduler": ("system:kube-scheduler", "system:masters"),
}


def missing():
    """Return why there can be no control plane here; nothing if there can."""
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"):
        if not (PROGRAMS / name).exists():
            return f"{PROGRAMS / name} is not there: run tests/k8s/build-control-plane"
    return "" if shutil.which("etcd") else "etcd is not on this machine"


def free_port(address):
    """Return a TCP port of an address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port = probe.getsockname()[1]
        return port


class ControlPlane:
    """Its processes, in `folder`, with the API server at `address`."""

    def __init__(self, folder, address):
        self.folder, self.address, self.port = folder, address, free_port(address)
        self.certificate, self.key = certify(folder, address)
        self.url = f"https://{address}:{self.port}"
        self.etcd = f"http://127.0.0.1:{free_port('127.0.0.1')}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        lines = [f'{t},{u},{u},"{g}"\n' for t, (u, g) in TOKENS.items()]
        (folder / "tokens.csv").write_text("".join(lines))
        self.administrator = self.configuration("administrator", "default")

    def api(self, token="administrator"):
        """Return a connection, for one thread."""
        return Api(self.url, self.certificate, token)

    def configuration(self, user, namespace):
        """Write the file by which a program finds the API server."""
        path = self.folder / f"{user}.kubeconfig"
        server = {"server": self.url, "certificate-authority": str(self.certificate)}
        found = {"cluster": "loopback", "user": user, "namespace": namespace}
        known = {"users": [{"name": user, "user": {"token": user}}], "current-context": "loopback"}
        known |= {"clusters": [{"name": "loopback", "cluster": server}]}
        known |= {"contexts": [{"name": "loopback", "context": found}]}
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **known}))
        return path

    def start(self):
        """Start all; returns when the API server answers and has its default account."""
        peer = f"http://127.0.0.1:{free_port('127.0.0.1')}"
        clients = [f"--listen-client-urls={self.etcd}", f"--advertise-client-urls={self.etcd}"]
        peers = [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
        peers.append(f"--initial-cluster=default={peer}")
        self.run("etcd", f"--data-dir={self.folder}/etcd", *clients, *peers)
        self.run(
            "kube-apiserver",
            f"--etcd-servers={self.etcd}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self.certificate}",
            f"--tls-private-key-file={self.key}",
            f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",  # as OpenShift
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={self.key}",
            f"--service-account-signing-key-file={self.key}",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--endpoint-reconciler-type=none",
        )
        self.until(lambda: self.api().ask("GET", "api"))
        controllers = self.configuration("controllers", "default")
        keys = [f"--root-ca-file={self.certificate}", f"--service-account-private-key-file={self.key}"]
        times = ["--node-monitor-period=2s", "--node-monitor-grace-period=30s"]
        alone = ["--leader-elect=false", "--secure-port=0"]
        self.run("kube-controller-manager", f"--kubeconfig={controllers}", *keys, *times, *alone)
        scheduler = self.configuration("scheduler", "default")
        allowed = [f"--authentication-kubeconfig={scheduler}", f"--authorization-kubeconfig={scheduler}"]
        self.run("kube-scheduler", f"--kubeconfig={scheduler}", *alone, *allowed)
        self.until(lambda: self.api().get("serviceaccounts", "default", "default"))
        return self

    def start_kubeflow(self):
        """Start the controllers of TrainJobs and JobSets, with the definitions of their kinds."""
        kubectl = [KUBECTL, f"--kubeconfig={self.administrator}"]
        for words in (
            ["apply", "--server-side", f"--filename={KUBEFLOW}"],
            ["wait", "--for=condition=Established", "crd", "--all", f"--timeout={START}s"],
        ):
            done = subprocess.run([*kubectl, *words], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        self.run("kubeflow-controllers", folder=KUBEFLOW, KUBECONFIG=str(self.administrator))

    def run(self, program, *flags, folder=PROGRAMS, **environment):
        """Start one program, which ends with this process."""
        known = folder / program
        path = str(known) if known.exists() else program
        with (self.folder / f"{program}.out").open("wb") as log:
            command = ["setpriv", "--pdeathsig", "KILL", path, *flags]
            pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT, "cwd": self.folder}
            variables = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **environment}
            self.processes[program] = subprocess.Popen(command, env=variables, **pipes)

    def until(self, question):
        """Wait until a question to the API server has an answer."""
        end, answer = time.monotonic() + START, "none yet"
        while time.monotonic() < end:
            self.check()
            try:
                question()
                return
            except (OSError, Refused) as error:
                answer = str(error)
            time.sleep(0.2)
        raise AssertionError(f"{answer}\n{self.last_words('kube-apiserver')}")

    def check(self):
        """Fail where a program has ended."""
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} ended:\n{self.last_words(name)}"

    def last_words(self, program):
        """Return the end of a program's log."""
        return (self.folder / f"{program}.out").read_text(errors="replace")[-3000:]

    def stop(self):
        """End all programs, the store last."""
        for process in reversed(self.processes.values()):
            process.kill()
            process.wait()

    def namespace(self, name, level="restricted"):
        """Create a namespace that holds its pods to a Pod Security Standard, with a volume."""
        labels = {"pod-security.kubernetes.io/enforce": level}
        api = self.api()
        api.create("namespaces", None, {"metadata": {"name": name, "labels": labels}})
        self.until(lambda: api.get("serviceaccounts", name, "default"))
        spec = {"capacity": {"storage": "1000Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}
        spec |= {"hostPath": {"path": "/"}, "persistentVolumeReclaimPolicy": "Retain"}
        spec["claimRef"] = {"namespace": name, "name": "pretrain"}
        api.create("persistentvolumes", None, {"metadata": {"name": name}, "spec": spec})
