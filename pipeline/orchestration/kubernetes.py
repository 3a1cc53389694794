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
from pipeline.common.prometheus import Exporter
from pipeline.config import ExecutorConfig
from pipeline.orchestration.graph import Node
from pipeline.orchestration.job_status import (
    PROGRESS,
    lost_node,
    newest_warning,
    pending_reason,
    progress,
    state,
    termination_message,
)
from pipeline.orchestration.local import StageFailed, announce_done

PART_OF = "app.kubernetes.io/part-of"
RESUMED = "bert-pretrain/resumed"  # annotation: when the driver let the Job go
PAUSED = "bert-pretrain/paused"  # annotation: a person wants the Job suspended
QUEUE = "kueue.x-k8s.io/queue-name"
WAITS = "bert-pretrain-waits-for-driver"  # the manifest's queue, which does not exist
DRIVER = "driver"  # the name of its own Job
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
        self.warned: set[str] = set()
        self.exporter = Exporter(config.prometheus_port, "executor.prometheus_port")

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
            self._export(jobs)
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

    def _export(self, jobs: dict[str, Any]) -> None:
        """Set what Prometheus reads: each stage's state, and its pods that failed."""
        for name, job in jobs.items():
            if name == DRIVER:
                continue
            now = progress(job)
            for one in PROGRESS:
                self.exporter.set("stage_state", float(one == now), stage=name, state=one)
            failed = (job.status.failed if job.status else None) or 0
            self.exporter.set("stage_failed_pods", float(failed), stage=name)

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
        else:
            self._steer(job)
        return False

    def _steer(self, job: Any) -> None:
        """Resume or pause a Job that is due, or say what it does.

        Only the annotation pauses: tools that apply the manifest again suspend the Job too, and
        nobody means that.
        """
        name, annotations = job.metadata.name, job.metadata.annotations or {}
        queue = self._queue(job)
        if annotations.get(PAUSED) == "true" and not queue:
            if not job.spec.suspend:
                self._patch(name, {"spec": {"suspend": True}})
            self._say(name, f"paused; to resume: kubectl annotate job {name} {PAUSED}-")
        elif queue and job.spec.suspend:
            self._say(name, f"queued in {queue}")
        elif job.spec.suspend:
            self._resume(job)
        else:
            self._say(name, self._condition(job))
            self._warn(job)

    def _queue(self, job: Any) -> str | None:
        """Return the Kueue queue that a Job is in, after putting it into ours if there is one.

        The manifest's label has to go first: Kueue lets it change only while the Job is suspended.
        """
        queue = (job.metadata.labels or {}).get(QUEUE)
        wanted = self.config.queue or (None if queue == WAITS else queue)
        if queue != wanted and job.spec.suspend:
            changed = self._patch(job.metadata.name, {"metadata": {"labels": {QUEUE: wanted}}})
            queue = (changed.metadata.labels or {}).get(QUEUE)  # Kueue may have set its default
        return None if queue == WAITS else queue

    def _resume(self, job: Any) -> None:
        name, now = job.metadata.name, datetime.datetime.now(datetime.UTC)
        again = RESUMED in (job.metadata.annotations or {})
        metadata = {"annotations": {RESUMED: now.isoformat(timespec="seconds")}}
        self._patch(name, {"metadata": metadata, "spec": {"suspend": False}})
        self.said.pop(name, None)  # each time is worth a line
        self._say(
            name,
            f"resumed, after somebody else suspended it (to pause: kubectl annotate job {name} "
            f"{PAUSED}=true)"
            if again
            else "resumed",
        )

    def _patch(self, name: str, patch: dict[str, Any]) -> Any:
        return self._ask(
            lambda: self.batch.patch_namespaced_job(
                name, self.namespace, patch, field_manager=MANAGER, _request_timeout=ANSWER
            )
        )

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
        """Return what a Job does now: how many of its pods run, and why one does not."""
        status, want = job.status, job.spec.completions or 1
        ready = (status.ready or 0) + (status.succeeded or 0)
        again = f", {status.failed} failed and replaced" if status.failed else ""
        waiting = ""
        if ready < want:
            now, pods = datetime.datetime.now(datetime.UTC), self._pods(job)
            reasons = [*(lost_node(pod, now) for pod in pods), *map(pending_reason, pods)]
            waiting = next(filter(None, reasons), "")
        return f"{ready} of {want} pods run or have run{again}{waiting and f', {waiting}'}"

    def _warn(self, job: Any) -> None:
        """Print the newest warning about a Job whose pods do not run, once."""
        status = job.status
        if (status.ready or 0) + (status.succeeded or 0) >= (job.spec.completions or 1):
            return
        try:
            found = self._ask(
                lambda: self.core.list_namespaced_event(
                    self.namespace, field_selector="type=Warning", _request_timeout=ANSWER
                )
            )
        except UserError as error:  # a Role without events: worse to end than to know less
            warning = f"its events cannot be read: {error}"
        else:
            warning = newest_warning(job, self._pods(job), found.items)
        if warning and warning not in self.warned:
            self.warned.add(warning)
            print(f"{job.metadata.name:<12}  warning: {warning}", flush=True)

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
