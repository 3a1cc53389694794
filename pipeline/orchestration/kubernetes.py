"""Runs the stages of a graph as Kubernetes Jobs that wait, suspended, until their inputs are done.

The Jobs are declared in k8s/pretrain.yaml, one a stage, named and labelled as it. All state is in
the cluster and on the volume, so the driver may die at any moment: the next one goes on from there.
"""

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pipeline.common.errors import ConfigError, Exit, Restart, UserError
from pipeline.common.manifest import Manifest
from pipeline.config import ExecutorConfig
from pipeline.orchestration.graph import Node
from pipeline.orchestration.local import StageFailed, announce_done

PART_OF = "app.kubernetes.io/part-of"
RESUMED = "bert-pretrain/resumed"  # annotation: when the driver let the Job go
QUEUE = "kueue.x-k8s.io/queue-name"
MANAGER = "pretrain-driver"  # our name among those who change an object
ANSWER = (10.0, 30.0)  # seconds that connecting, and an answer of the API server, may take
VISIBLE = 120.0  # seconds that a file system may take to show another node's rename
WHOSE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Answer = TypeVar("Answer")


class KubernetesExecutor:
    """Stages as Jobs: resumed, followed to their end, never deleted."""

    def __init__(self, config: ExecutorConfig):
        self.config = config
        self.batch, self.core, self.namespace = connect(config.namespace)
        self.said: dict[str, str] = {}  # the last word on each Job

    def run(self, nodes: list[Node]) -> None:
        """Run what has to run, in an order that respects the edges.

        Raises:
            ConfigError: a stage has no Job.
            UserError: a stage ended with exit code 2, or its Job is used up.
            StageFailed: a stage's Job failed otherwise.
        """
        announce_done(nodes)
        done = {node.name for node in nodes if node.reason is None}
        groups: dict[str, list[Node]] = {}
        for node in nodes:
            if node.reason is not None:
                groups.setdefault(node.job, []).append(node)
        self._check(groups)
        ended: dict[str, float] = {}
        while groups:
            jobs = self._jobs()
            for name, members in list(groups.items()):
                if self._follow(jobs.get(name), members, done, ended):
                    done |= {node.name for node in members}
                    del groups[name]
            if groups:
                time.sleep(self.config.poll)

    def _check(self, groups: dict[str, list[Node]]) -> None:
        jobs = self._jobs()
        absent = sorted(groups.keys() - jobs.keys())
        if absent:
            raise ConfigError(
                f"no Job for stage {', '.join(absent)} in namespace {self.namespace}: "
                f"apply k8s/pretrain.yaml, or choose a recipe that fits it"
            )

    def _jobs(self) -> dict[str, Any]:
        """The Jobs of this run by name."""
        found = self._ask(
            lambda: self.batch.list_namespaced_job(
                self.namespace,
                label_selector=f"{PART_OF}={self.config.part_of}",
                _request_timeout=ANSWER,
            )
        )
        return {job.metadata.name: job for job in found.items}

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """An answer of the API server, asked again while it is away.

        Raises:
            UserError: it refuses: no such object, or no right to it.
            Restart: it stays away for longer than `patience`.
        """
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        until = time.monotonic() + self.config.patience
        while True:
            try:
                return question()
            except ApiException as error:
                if error.status in (401, 403, 404, 422):
                    raise UserError(
                        f"the API server refuses: {error.reason}: {error.body}"
                    ) from error
                trouble = f"{error.status} {error.reason}"
            except (HTTPError, OSError) as error:
                trouble = type(error).__name__
            if time.monotonic() > until:
                raise Restart(f"no answer of the API server ({trouble})")
            time.sleep(self.config.poll)

    def _follow(
        self, job: Any, members: list[Node], done: set[str], ended: dict[str, float]
    ) -> bool:
        """Take a stage one look further; whether it is done."""
        name = members[0].job
        if job is None:
            raise UserError(f"stage {name}: its Job was deleted before it was done")
        over = state(job)
        if over == "Failed":
            self._raise(job)
        if over == "Complete":
            if all(current(node) for node in members):
                self._say_done(job, members)
                return True
            if time.monotonic() - ended.setdefault(name, time.monotonic()) > VISIBLE:
                raise UserError(f"stage {name}: {job_exhausted(job, members)}")
        elif not all(need in done for node in members for need in node.needs):
            return False
        elif job.spec.suspend and not self._paused(job):
            self._resume(job)
        else:
            self._say(name, self._condition(job))
        return False

    def _paused(self, job: Any) -> bool:
        """Whether somebody suspended a Job that was let go before.

        Applying the manifest again suspends it too; that is nobody's wish to pause.
        """
        let_go = (job.metadata.annotations or {}).get(RESUMED)
        if self.config.queue:
            return bool(let_go)  # Kueue suspends and resumes as it sees fit
        return let_go is not None and not declared(job)

    def _resume(self, job: Any) -> None:
        name, now = job.metadata.name, datetime.datetime.now(datetime.UTC)
        metadata: dict[str, Any] = {"annotations": {RESUMED: now.isoformat(timespec="seconds")}}
        patch: dict[str, Any] = {"metadata": metadata, "spec": {"suspend": False}}
        if self.config.queue:
            metadata["labels"] = {QUEUE: self.config.queue}
            del patch["spec"]
        self._ask(
            lambda: self.batch.patch_namespaced_job(
                name, self.namespace, patch, field_manager=MANAGER, _request_timeout=ANSWER
            )
        )
        self._say(name, f"queued in {self.config.queue}" if self.config.queue else "resumed")

    def _say(self, name: str, what: str) -> None:
        if self.said.get(name) != what:
            self.said[name] = what
            print(f"{name:<12}  {what}", flush=True)

    def _say_done(self, job: Any, members: list[Node]) -> None:
        took = (job.status.completion_time - job.status.start_time).total_seconds()
        for node in members:
            manifest = Manifest.read(node.out)
            assert manifest is not None
            print(f"{node.name:<12}  {took:.0f} s  {manifest.summary}", flush=True)

    def _pods(self, job: Any) -> list[Any]:
        """The Job's pods, the newest first."""
        found = self._ask(
            lambda: self.core.list_namespaced_pod(
                self.namespace,
                label_selector=f"batch.kubernetes.io/job-name={job.metadata.name}",
                _request_timeout=ANSWER,
            )
        )
        return sorted(found.items, key=lambda pod: pod.metadata.creation_timestamp, reverse=True)

    def _condition(self, job: Any) -> str:
        """What a Job does now: how many of its pods run, and why one does not."""
        if job.spec.suspend:
            return "queued" if self.config.queue else "paused: spec.suspend was set by hand"
        status, want = job.status, job.spec.completions or 1
        ready = (status.ready or 0) + (status.succeeded or 0)
        again = f", {status.failed} failed and made anew" if status.failed else ""
        waiting = (
            "" if ready >= want else next(filter(None, map(pending_reason, self._pods(job))), "")
        )
        return f"{ready} of {want} pods run or have run{again}{waiting and f', {waiting}'}"

    def _raise(self, job: Any) -> None:
        """Say why a Job failed, by the words of the pod that says most."""
        name = job.metadata.name
        reason = next(c for c in job.status.conditions if c.type == "Failed")
        code, words = termination_message(self._pods(job))
        errors = [line for line in words.splitlines() if line.startswith("error: ")]
        if code == Exit.USER and errors:
            raise UserError(f"stage {name}: {errors[0].removeprefix('error: ')}")
        raise StageFailed(
            f"stage {name}: its Job failed, {reason.reason}: {reason.message}"
            + (f"; a pod ended with exit code {code}, saying last:\n{words}" if code else "")
            + f"\nMend it, kubectl delete job {name} driver, and apply again."
        )


def connect(namespace: str | None) -> tuple[Any, Any, str]:
    """The API of Jobs, that of pods, and the namespace: from within a pod, or by a kubeconfig.

    Raises:
        ConfigError: the client library is not installed, or no cluster is configured.
    """
    try:
        from kubernetes import client, config
    except ModuleNotFoundError as error:
        raise ConfigError(
            "executor=kubernetes needs the client library: pip install -e '.[kubernetes]'"
        ) from error
    try:
        config.load_incluster_config()
        own = WHOSE.read_text().strip()
    except (config.ConfigException, OSError):
        try:
            config.load_kube_config()
            _, active = config.list_kube_config_contexts()
        except (config.ConfigException, OSError) as error:
            raise ConfigError(f"executor=kubernetes: no cluster to talk to ({error})") from error
        own = active["context"].get("namespace", "default")
    return client.BatchV1Api(), client.CoreV1Api(), namespace or own


def state(job: Any) -> str | None:
    """Complete or Failed, of a Job that is over."""
    for condition in (job.status.conditions if job.status else None) or []:
        if condition.type in ("Complete", "Failed") and condition.status == "True":
            return str(condition.type)
    return None


def declared(job: Any) -> bool:
    """Whether `spec.suspend` stands as an apply of the manifest set it, not as somebody since."""
    for entry in job.metadata.managed_fields or []:
        if "f:suspend" in (entry.fields_v1 or {}).get("f:spec", {}):
            return entry.operation == "Apply" or "apply" in (entry.manager or "")
    return False


def current(node: Node) -> bool:
    """Whether the stage's folder holds what this graph wants."""
    manifest = Manifest.read(node.out)
    return manifest is not None and manifest.fingerprint == node.fingerprint


def job_exhausted(job: Any, members: list[Node]) -> str:
    """Why a Job that is complete leaves a stage to be made, and what to do."""
    again = f"kubectl delete job {job.metadata.name}, and apply again"
    node = next(node for node in members if not current(node))
    made = Manifest.read(node.out)
    if made is None or datetime.datetime.fromisoformat(made.finished) < job.status.start_time:
        return f"it has to run ({node.reason}), but its Job is used up: {again}"
    return f"made by other code or settings than the driver's: use images of one build, {again}"


def pending_reason(pod: Any) -> str:
    """Why a pod does not run yet, if the cluster says so."""
    for condition in pod.status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{pod.metadata.name}: {condition.reason}: {condition.message}"
    for container in pod.status.container_statuses or []:
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in ("ContainerCreating", "PodInitializing"):
            return f"{pod.metadata.name}: {waiting.reason}: {waiting.message or ''}"
    return ""


def termination_message(pods: list[Any]) -> tuple[int, str]:
    """Exit code and last output of the pod that says most: bad configuration before all else."""
    ends = [
        container.state.terminated
        for pod in pods
        for container in pod.status.container_statuses or []
        if container.state.terminated is not None and container.state.terminated.exit_code != 0
    ]
    ends.sort(key=lambda end: end.exit_code != Exit.USER)  # stable: the newest of equals
    return (ends[0].exit_code, (ends[0].message or "").strip()) if ends else (0, "")
