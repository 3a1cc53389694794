"""A namespace of a real control plane whose pods end as a test says, and what may refuse them."""

import subprocess
import threading
import time

from pipeline.config import ExecutorConfig, ReportConfig
from pipeline.orchestration import kubernetes
from pipeline.orchestration.job_status import JOBSET, Owner
from pipeline.orchestration.run_plan import Run, StageRecord
from tests.k8s.api import Refused, ended
from tests.k8s.control_plane import KUBECTL
from tests.k8s.kubelet import CAPACITY, now
from tests.support import finished

PART = {"app.kubernetes.io/part-of": "bert-pretrain"}


class Small:
    """A namespace whose pods do nothing and end as told, on a node that is not there.

    `ends(job)` returns the exit code and the last words of a Job's pod; None while it runs.
    """

    def __init__(self, control, namespace, folder, ends):
        self.control, self.namespace, self.folder = control, namespace, folder
        self.ends, self.order, self.stories = ends, list[str](), list[str]()
        self.api, self.nodes = control.api(), control.api()
        self.owner: Owner | None = None
        self.stopping = threading.Event()
        self.pods = threading.Thread(target=self._look, daemon=True)

    def declare(self, name, labels=None, image="i:1", **more):
        """A template of one stage, as an apply of the manifest creates it."""
        pod = {"restartPolicy": "Never", "containers": [{"name": "stage", "image": image}]}
        policy = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}}]}
        template = {"metadata": {"labels": PART}, "spec": pod}
        spec = {"backoffLimit": 0, "podFailurePolicy": policy, **more, "template": template}
        job = {"metadata": {"labels": {**PART, **(labels or {})}}, "spec": spec}
        annotations = {"bert-pretrain/stages": name}
        item = {
            "metadata": {"name": f"for-{name}", "labels": PART, "annotations": annotations},
            "spec": {"suspend": True, "schedule": "0 0 31 2 *", "jobTemplate": job},
        }
        self.api.create("cronjobs", self.namespace, item)

    def started(self, name="driver"):
        """The driver's own Job, here without its pod."""
        pod = {"restartPolicy": "Never", "containers": [{"name": "driver", "image": "i:1"}]}
        item = {"metadata": {"name": name}, "spec": {"suspend": True, "template": {"spec": pod}}}
        made = self.api.create("jobs", self.namespace, item)
        self.owner = Owner(name, made["metadata"]["uid"])
        return self.owner

    def kubectl(self, *words, given=""):
        """Return what kubectl prints in this namespace."""
        place = [f"--kubeconfig={self.control.administrator}", f"--cache-dir={self.folder}/cache"]
        command = [KUBECTL, *place, f"--namespace={self.namespace}", *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def node(self, name, *needs):
        """A stage that has to run."""
        out = self.folder / name
        config = ReportConfig(workdir=str(self.folder), out=str(out))
        about = {"needs": needs, "fingerprint": name, "config": config, "reason": "not made yet"}
        return StageRecord(name=name, kind="report", **about)

    def job(self, name):
        """A Job as it is now."""
        return self.api.get("jobs", self.namespace, name)

    def change(self, name, manager, change):
        """Change a Job as the tool of this name does."""
        path = self.api.path("jobs", self.namespace, name)
        self.api.ask("PATCH", path, change, params={"fieldManager": manager})

    def drive(self, *nodes, **settings):
        """Run the driver."""
        self.driver(*nodes, **settings).run(list(nodes))

    def driver(self, *nodes, **settings):
        """The driver, as its pod is started."""
        config = ExecutorConfig(name="kubernetes", poll=0.2, namespace=self.namespace, **settings)
        stages = {node.name: node for node in nodes}
        empty = {"mirror": None, "command": "", "environment": {}}
        record = Run(workdir=str(self.folder), recipe="small", cores=1, stages=stages, **empty)
        made = kubernetes.KubernetesExecutor(config, record)
        made.owner, made.longest_wait = self.owner, 2.0
        return made

    def _look(self):
        while not self.stopping.wait(0.1):
            beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": now()}
            status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [beat]}
            self.nodes.patch("nodes", None, "desk", {"status": status}, "status")
            for pod in self.nodes.find("pods", self.namespace):
                try:
                    labels = pod["metadata"]["labels"]
                    self._sync(pod, labels.get(JOBSET, labels["batch.kubernetes.io/job-name"]))
                except Refused:
                    continue  # deleted meanwhile

    def _sync(self, pod, job):
        name, leaves = pod["metadata"]["name"], "deletionTimestamp" in pod["metadata"]
        if not ended(pod) and pod["spec"].get("nodeName"):
            end = (143, "") if leaves else self.ends(job)
            if end is not None:
                self._end(name, job, *end)
        if leaves:
            self.nodes.delete("pods", self.namespace, name, gracePeriodSeconds=0)

    def _end(self, pod, job, code, words):
        self.order.append(job)
        if code == 0:
            (self.folder / job).mkdir(exist_ok=True)
            finished.manifest("report", fingerprint=job, summary=f"{job} made", finished=now()).write(self.folder / job)
        ended = {"exitCode": code, "message": words, "reason": "Error", "startedAt": now(), "finishedAt": now()}
        state = {"terminated": ended}
        stage = {"name": "stage", "image": "i:1", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [stage]}
        self.nodes.patch("pods", self.namespace, pod, {"status": status}, "status")


class Driver:
    """The driver in a thread, while a test does something to its Jobs."""

    def __init__(self, capsys, small, *nodes, **settings):
        self.capsys, self.story, self.error = capsys, "", list[BaseException]()
        self.thread = threading.Thread(target=self._run, args=(small, nodes, settings), daemon=True)
        self.thread.start()

    def _run(self, small, nodes, settings):
        try:
            small.drive(*nodes, **settings)
        except BaseException as error:
            self.error.append(error)

    def wait(self, what):
        """Until something is so, of what the driver has said."""
        until = time.monotonic() + 60
        while not what(self.story):
            assert not self.error, self.error
            assert time.monotonic() < until, self.story
            time.sleep(0.1)
            self.story += self.capsys.readouterr().out

    def end(self):
        """Wait until it is done; all that it said."""
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert not self.error, self.error
        return self.story + self.capsys.readouterr().out
