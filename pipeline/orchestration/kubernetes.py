"""Run the stages of a graph as Kubernetes Jobs, suspended until their inputs are done.

The Jobs are declared in k8s/pretrain.yaml, one per stage and named after it; training may be a
custom resource instead (`custom_jobs`). All state is in the cluster and on the volume, so the
driver may die at any moment and be restarted.
"""

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pipeline.common.errors import ConfigError, Exit, Restart, UserError, records_in
from pipeline.common.manifest import Manifest
from pipeline.common.prometheus import Exporter
from pipeline.config import ExecutorConfig
from pipeline.orchestration.custom_jobs import JOBSETS, TRAINJOBS, CustomJob, CustomJobs
from pipeline.orchestration.job_status import (
    PREFLIGHT,
    PROGRESS,
    lost_node,
    newest_warning,
    pending_reason,
    pod_label,
    progress,
    resource,
    state,
    termination_message,
    without_suffixes,
)
from pipeline.orchestration.local import StageFailed, announce_done, of_stage
from pipeline.orchestration.run_document import StageRecord

SELECTOR = "app.kubernetes.io/part-of=bert-pretrain"  # of the stages' Jobs
RESUMED = "bert-pretrain/resumed"  # annotation: when the driver resumed the Job
PAUSED = "bert-pretrain/paused"  # annotation: set by a user to suspend the Job
QUEUE = "kueue.x-k8s.io/queue-name"
WAITS = "bert-pretrain-waits-for-driver"  # the manifest's queue, which does not exist
DRIVER = "driver"  # the name of the driver's own Job
MANAGER = "pretrain-driver"  # field manager of the driver's patches
ANSWER = (10.0, 30.0)  # connect and read timeouts of the API server, in seconds
VISIBLE = 120.0  # seconds until a file system shows another node's rename
WHOSE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Answer = TypeVar("Answer")


class KubernetesExecutor:
    """Executor of stages as Jobs, which it resumes and follows but never deletes."""

    patience = 600.0  # seconds without an answer of the API server until it gives up

    def __init__(self, config: ExecutorConfig):
        self.config = config
        self.batch, self.core, self.namespace = connect(config.namespace)
        chosen = {TRAINJOBS: config.trainjobs, JOBSETS: config.jobsets}
        self.custom = CustomJobs(self.namespace, *(kind for kind in chosen if chosen[kind]))
        self.said: dict[str, str] = {}  # the last line printed about each Job
        self.warned: set[str] = set()
        self.exporter = Exporter(config.prometheus_host, config.prometheus_port, "executor.prometheus_port")

    def run(self, nodes: list[StageRecord]) -> None:
        """Run the stages that have to run, in dependency order.

        Raises:
            ConfigError: a stage has no Job.
            UserError: a stage ended with exit code 2, or its Job has already completed; or a node
                is bad.
            StageFailed: a stage's Job failed otherwise.
        """
        announce_done(nodes)
        done = {node.name for node in nodes if node.reason is None}
        groups: dict[str, list[StageRecord]] = {}
        for node in nodes:
            if node.reason is not None:
                groups.setdefault(node.job, []).append(node)
        self._check(groups)
        if self.config.preflight and any(node.kind == "train" and node.reason for node in nodes):
            self._run_preflight()
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

    def _check(self, groups: dict[str, list[StageRecord]]) -> None:
        jobs = self._jobs()
        absent = sorted(groups.keys() - jobs.keys())
        if absent:
            raise ConfigError(
                f"namespace {self.namespace} has no Job for stage {', '.join(absent)}; apply "
                "k8s/pretrain.yaml or your overlay; add the Jobs of a recipe of your own first "
                "(docs/operations.md, Kubernetes)"
            )

    def _run_preflight(self) -> None:
        """Run the Job that checks the nodes of training, which is not a stage of the graph."""
        while True:
            job = self._jobs().get(PREFLIGHT)
            if job is None:
                raise ConfigError(
                    f"namespace {self.namespace} has no Job {PREFLIGHT}; apply k8s/pretrain.yaml",
                    "executor.preflight",
                    True,
                )
            over = state(job)
            if over == "Failed":
                self._raise(job)
            if over == "Complete":
                self._say(PREFLIGHT, f"all nodes are good; kubectl logs job/{PREFLIGHT}")
                return
            self._steer(job)
            time.sleep(self.config.poll)

    def _jobs(self) -> dict[str, Any]:
        """Return the Jobs of this run by name, and its custom resources."""
        found = self._ask(
            lambda: self.batch.list_namespaced_job(self.namespace, label_selector=SELECTOR, _request_timeout=ANSWER)
        )
        jobs = {job.metadata.name: job for job in found.items}
        return jobs | self._ask(lambda: self.custom.find(SELECTOR))

    def _export(self, jobs: dict[str, Any]) -> None:
        """Export each stage's state and number of failed pods to Prometheus."""
        for name, job in jobs.items():
            if name == DRIVER:
                continue
            now = progress(job)
            for one in PROGRESS:
                self.exporter.set("stage_state", float(one == now), stage=name, state=one)
            failed = (job.status.failed if job.status else None) or 0
            self.exporter.set("stage_failed_pods", float(failed), stage=name)

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """Return an answer of the API server, retrying while it is unavailable.

        Raises:
            UserError: it rejects the request: no such object, or no permission.
            Restart: it is unavailable for longer than `patience`.
        """
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        until = time.monotonic() + self.patience
        while True:
            try:
                return question()
            except ApiException as error:
                if error.status in (401, 403, 404, 422):
                    raise UserError(f"the API server rejects a request: {error.reason}: {error.body}") from error
                trouble = f"{error.status} {error.reason}"
            except (HTTPError, OSError) as error:
                trouble = type(error).__name__
            if time.monotonic() > until:
                raise Restart(f"the API server does not respond ({trouble})")
            time.sleep(self.config.poll)

    def _follow(self, job: Any, members: list[StageRecord], done: set[str], ended: dict[str, float]) -> bool:
        """Poll a stage once and return whether it is done."""
        name = members[0].job
        if job is None:
            raise UserError(
                "its Job was deleted before the stage was done; apply k8s/pretrain.yaml again", where=f"stage {name}"
            )
        over = state(job)
        if over == "Failed":
            self._raise(job)
        if over == "Complete":
            if all(node.made() for node in members):
                self._say_done(job, members)
                return True
            if time.monotonic() - ended.setdefault(name, time.monotonic()) > VISIBLE:
                raise UserError(job_exhausted(job, members), where=f"stage {name}")
        elif not all(need in done for node in members for need in node.needs):
            return False
        else:
            self._steer(job)
        return False

    def _steer(self, job: Any) -> None:
        """Resume or pause a Job that is due, or print its status.

        Only the annotation pauses it: tools that reapply the manifest also suspend the Job, but
        unintentionally.
        """
        name, annotations = job.metadata.name, job.metadata.annotations or {}
        queue = self._queue(job)
        if annotations.get(PAUSED) == "true" and not queue:
            if not job.spec.suspend:
                self._patch(job, {"spec": {"suspend": True}})
            self._say(name, f"paused; to resume: kubectl annotate {resource(job)} {name} {PAUSED}-")
        elif queue and job.spec.suspend:
            self._say(name, f"queued in {queue}")
            self._warn(job)
        elif job.spec.suspend:
            self._resume(job)
        else:
            self._say(name, self._condition(job))
            self._warn(job)

    def _queue(self, job: Any) -> str | None:
        """Return the Kueue queue of a Job, after moving it to the configured queue if one is set.

        The manifest's label is removed first: Kueue allows changes only while the Job is suspended.
        """
        queue = (job.metadata.labels or {}).get(QUEUE)
        wanted = self.config.queue or (None if queue == WAITS else queue)
        if queue != wanted and job.spec.suspend:
            changed = self._patch(job, {"metadata": {"labels": {QUEUE: wanted}}})
            queue = (changed.metadata.labels or {}).get(QUEUE)  # Kueue may have set its default
        return None if queue == WAITS else queue

    def _resume(self, job: Any) -> None:
        name, now = job.metadata.name, datetime.datetime.now(datetime.UTC)
        again = RESUMED in (job.metadata.annotations or {})
        metadata = {"annotations": {RESUMED: now.isoformat(timespec="seconds")}}
        self._patch(job, {"metadata": metadata, "spec": {"suspend": False}})
        self.said.pop(name, None)  # print every time
        self._say(
            name,
            f"resumed, after another client suspended it (to pause: kubectl annotate "
            f"{resource(job)} {name} {PAUSED}=true)"
            if again
            else "resumed",
        )

    def _patch(self, job: Any, patch: dict[str, Any]) -> Any:
        if isinstance(job, CustomJob):
            return self._ask(lambda: self.custom.patch(job, patch, MANAGER))
        name = job.metadata.name
        return self._ask(
            lambda: self.batch.patch_namespaced_job(
                name, self.namespace, patch, field_manager=MANAGER, _request_timeout=ANSWER
            )
        )

    def _say(self, name: str, what: str) -> None:
        if self.said.get(name) != what:
            self.said[name] = what
            print(f"{name:<12}  {what}", flush=True)

    def _say_done(self, job: Any, members: list[StageRecord]) -> None:
        took = (job.status.completion_time - job.status.start_time).total_seconds()
        for node in members:
            manifest = Manifest.read(node.out)
            assert manifest is not None
            print(f"{node.name:<12}  {took:.0f} s  {manifest.summary}", flush=True)

    def _pods(self, job: Any) -> list[Any]:
        """Return the Job's pods, newest first."""
        found = self._ask(
            lambda: self.core.list_namespaced_pod(
                self.namespace, label_selector=f"{pod_label(job)}={job.metadata.name}", _request_timeout=ANSWER
            )
        )
        return sorted(found.items, key=lambda pod: pod.metadata.creation_timestamp, reverse=True)

    def _condition(self, job: Any) -> str:
        """Return the status of a Job: how many of its pods run, and why one does not."""
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
        """Print the newest warning about a Job that is queued or whose pods do not run, once."""
        status = job.status
        if (status.ready or 0) + (status.succeeded or 0) >= (job.spec.completions or 1):
            return
        try:
            found = self._ask(
                lambda: self.core.list_namespaced_event(
                    self.namespace, field_selector="type=Warning", _request_timeout=ANSWER
                )
            )
        except UserError as error:  # a Role without events: not a reason to end the run
            warning = f"its events cannot be read: {error}"
        else:
            warning = newest_warning(job, self._pods(job), found.items)
        known = without_suffixes(warning)
        if warning and known not in self.warned:
            self.warned.add(known)
            print(f"{job.metadata.name:<12}  warning: {warning}", flush=True)

    def _raise(self, job: Any) -> None:
        """Raise the error of a failed Job, with the output of its most relevant pod."""
        name = job.metadata.name
        reason = next(c for c in job.status.conditions if c.type == "Failed")
        code, words = termination_message(self._pods(job))
        for error in records_in(words):
            if isinstance(error, UserError) and error.code == code == Exit.USER:
                raise of_stage(name, error)
        raise StageFailed(
            f"stage {name}: its Job failed, {reason.reason}: {reason.message}"
            + (f"; a pod ended with exit code {code}; its last output:\n{words}" if code else "")
            + f"\nFix it, kubectl delete {resource(job)}/{name} job/{DRIVER}, and apply the "
            "manifest again."
        )


def connect(namespace: str | None) -> tuple[Any, Any, str]:
    """Return the clients for Jobs and pods, and the namespace, from a pod or a kubeconfig.

    Raises:
        ConfigError: the client library is not installed, or no cluster is configured.
    """
    try:
        from kubernetes import client, config
    except ModuleNotFoundError as error:
        raise ConfigError(
            "client library not found; pip install -e '.[kubernetes]'", "executor", "kubernetes"
        ) from error
    try:
        config.load_incluster_config()
        own = WHOSE.read_text().strip()
    except (config.ConfigException, OSError):
        try:
            config.load_kube_config()
            _, active = config.list_kube_config_contexts()
        except (config.ConfigException, OSError) as error:
            raise ConfigError(
                f"no cluster is configured ({error}); set KUBECONFIG", "executor", "kubernetes"
            ) from error
        own = active["context"].get("namespace", "default")
    return client.BatchV1Api(), client.CoreV1Api(), namespace or own


def job_exhausted(job: Any, members: list[StageRecord]) -> str:
    """Return why a stage is not done although its Job is complete, and what to do."""
    again = f"kubectl delete {resource(job)} {job.metadata.name}, and apply the manifest again"
    node = next(node for node in members if node.made() is None)
    made = Manifest.read(node.out)
    if made is None or datetime.datetime.fromisoformat(made.finished) < job.status.start_time:
        return f"it has to run ({node.reason}), but its Job has already completed; {again}"
    return f"its code or settings differ from the driver's; use images of one build, {again}"
