"""Run the stages of a graph as Kubernetes Jobs, each made when its inputs are done.

They are made of the templates in k8s/pretrain.yaml, belong to the driver's own Job and are named
after their stages; training may be a TrainJob instead. The driver lists and creates, and changes
nothing. All state is in the cluster and on the volume: it may die at any moment and be restarted.
"""

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.common.prometheus import Exporter
from pipeline.config import ExecutorConfig
from pipeline.errors import ConfigError, UserError, read_errors
from pipeline.orchestration import job_status
from pipeline.orchestration.follow import Answer, Executor, NoAnswer, StageFailed, add_stage_name
from pipeline.orchestration.job_status import ANSWER, Object, Pods, Template
from pipeline.orchestration.run_plan import Groups, Run, StageRecords, group_by_job
from pipeline.records import run_file
from pipeline.records.manifest import Manifest
from pipeline.stages.registry import NODES, placement_of

QUEUE = "kueue.x-k8s.io/queue-name"
DRIVER = "driver"  # the name of the driver's own Job
WHOSE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class KubernetesExecutor(Executor):
    """Executor of stages as Jobs, which it makes and follows but never changes or deletes."""

    asked = "the API server"

    def __init__(self, config: ExecutorConfig, run: Run):
        super().__init__()
        self.config, self.record, self.poll = config, run, config.poll
        self.core, self.namespace = connect(config.namespace)
        self.custom, self.has_trainer = job_status.CustomObjects(self.namespace), True
        uid = os.environ.get("BERT_DRIVER_UID")
        # None: outside of a cluster
        self.owner = job_status.Owner(os.environ.get("BERT_DRIVER", DRIVER), uid) if uid else None
        self.jobs: dict[str, Object] = {}  # at the last look, as the templates
        self.templates: list[Template] = []
        self.warned: set[str] = set()
        self.exporter = Exporter(config.prometheus_host, config.prometheus_port, "executor.prometheus_port")

    def run(self, nodes: StageRecords) -> None:
        """Run the stages that have to run, in dependency order.

        Raises:
            ConfigError: a stage has no template.
            UserError: a stage ended with exit code 2, or a Job of its name is another run's; or a
                node is bad.
            StageFailed: a stage's Job failed otherwise.
        """
        groups = group_by_job(nodes)
        if not groups:
            return
        print(self.expected(nodes), flush=True)
        if self._checks_nodes(groups):
            self.run_loop(nodes, {job_status.PREFLIGHT: []})
            self.say(job_status.PREFLIGHT, f"all nodes are good; kubectl logs job/{job_status.PREFLIGHT}")
        self.run_loop(nodes, groups)

    def expected(self, nodes: StageRecords) -> str:
        """Return a line about each Job that has to be made.

        Raises:
            ConfigError: a stage has no template.
        """
        groups, templates = group_by_job(nodes), self._templates()
        if self._checks_nodes(groups):
            groups = {job_status.PREFLIGHT: [], **groups}
        return "\n".join(
            job_status.describe_job(job_status.choose(templates, name, kind_of(all_of)), name)
            for name, all_of in groups.items()
        )

    def _checks_nodes(self, groups: Groups) -> bool:
        return self.config.preflight and any(placement_of(kind_of(members)) == NODES for members in groups.values())

    def refresh(self, groups: Groups) -> None:
        """Learn the templates and the states of all Jobs as they are now, and export these."""
        trainjobs = self._ask(lambda: self.custom.find(job_status.TRAINJOBS)) if self.has_trainer else []
        self.jobs = job_status.by_name(self._ask(lambda: self.custom.find(job_status.JOBS)), trainjobs)
        self.templates = self._templates()
        self._export(groups)

    def _templates(self) -> list[Template]:
        """Return the templates as they are now."""
        objects = self._ask(lambda: self.custom.find(job_status.CRONJOBS))
        if self.has_trainer:
            try:
                objects += self._ask(lambda: self.custom.find(job_status.RUNTIMES))
            except UserError:  # not installed, or the overlay `trainjob` is not applied
                self.has_trainer = False
        return job_status.templates_of(objects)

    def _export(self, groups: Groups) -> None:
        """Export each stage's state and number of failed pods to Prometheus."""
        stages = {name for name, job in self.jobs.items() if job_status.STAGE in job["metadata"].get("labels", {})}
        for name in stages | groups.keys():
            job = self.jobs.get(name)
            now = job_status.progress(job)
            for one in job_status.PROGRESS:
                self.exporter.set("stage_state", float(one == now), stage=name, state=one)
            failed = job["status"].get("failed", 0) if job is not None else 0
            self.exporter.set("stage_failed_pods", float(failed), stage=name)

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """Return an answer of the API server, retrying while it is unavailable.

        Raises:
            UserError: it rejects the request: no such object, or no permission.
            Restart: it is unavailable for longer than `longest_wait`.
        """
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        def asked() -> Answer:
            try:
                return question()
            except ApiException as error:
                if error.status in (401, 403, 404, 422):
                    raise UserError(f"the API server rejects a request: {error.reason}: {error.body}") from error
                raise NoAnswer(f"{error.status} {error.reason}") from error
            except (HTTPError, OSError) as error:
                raise NoAnswer(type(error).__name__) from error

        return self.ask(asked)

    def advance(self, name: str, members: StageRecords, due: bool) -> bool:
        """Make a Job that is `due`, print its state, and return whether it has ended well.

        Raises:
            UserError, StageFailed: it has failed.
        """
        job = self.jobs.get(name)
        waits = self._whose(job) if job is not None else ""
        if job is None or waits:
            if due:
                self.say(name, waits or self._make(job_status.choose(self.templates, name, kind_of(members)), name))
            return False
        now = job_status.progress(job)
        if now == "failed":
            raise self._failure(job)
        if now != "complete" and due:
            self._report(job)
        return now == "complete"

    def missing_output(self, name: str, members: StageRecords) -> Exception:
        """Return the error of a Job that is complete and left no results."""
        return UserError(job_exhausted(self.jobs[name], members), where=f"stage {name}")

    def _whose(self, job: Object) -> str:
        """Return what a Job of before has to wait for; empty: it is this run's.

        Raises:
            UserError: it is another run's, or made for other settings.
        """
        about, name = job["metadata"], job["metadata"]["name"]
        if "deletionTimestamp" in about:
            return "its Job of before is being deleted"
        owners = {owner["uid"] for owner in about.get("ownerReferences", [])}
        if owners and (self.owner is None or self.owner.uid not in owners):
            others = [other["metadata"] for other in self.jobs.values() if other["metadata"]["uid"] in owners]
            alive = [other["name"] for other in others if "deletionTimestamp" not in other]
            if not alive:
                return "the Job of an earlier run is about to be deleted"
            raise UserError(
                f"its Job belongs to job/{alive[0]}; use a namespace for each run, or kubectl delete job {alive[0]}",
                where=f"stage {name}",
            )
        if about.get("annotations", {}).get(job_status.FOR) != self.record.digest(name):
            raise UserError(
                "the Job of this name is another run's, or was made for other settings or inputs; kubectl delete "
                f"{job_status.resource(job)} {name}, and start the run again",
                where=f"stage {name}",
            )
        return ""

    def _make(self, template: Template, name: str) -> str:
        """Make a Job, once the pods of a deleted one have ended: they have its host names, and may still save."""
        pods = self._pods("trainjob" if template.is_runtime else "job", name)
        left = [pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]
        if left:
            now = datetime.datetime.now(datetime.UTC)
            lost = next(filter(None, (job_status.lost_node(pod, now) for pod in left)), "")
            return f"waits for the end of {len(left)} pods of its deleted Job{lost and f', {lost}'}"
        place = run_file.place_of(self.record.workdir)
        item = job_status.job_of(template, name, self.record.digest(name), place, self.owner)
        self._ask(lambda: self.custom.create(item))
        return f"made of template {template.name}"

    def _report(self, job: Object) -> None:
        """Print the status of a Job that has not ended."""
        about, kind = job["metadata"], job_status.resource(job)
        name, (good, total) = about["name"], job_status.count_pods(job)
        pods = self._pods(kind, name) if good < total else []
        if job["spec"].get("suspend"):
            queue = about.get("labels", {}).get(QUEUE)
            again = f"""kubectl patch {kind} {name} --type=merge -p '{{"spec":{{"suspend":false}}}}'"""
            self.say(name, f"queued in {queue}" if queue else f"paused; to resume: {again}")
        else:
            self.say(name, job_status.describe_pods(job, pods))
        if good < total:
            self._warn(job, pods)
        if about["annotations"][job_status.MADE_OF] not in [template.content for template in self.templates]:
            self._once(name, f"its template has changed; to restart with it: kubectl delete {kind} {name}")

    def _once(self, name: str, what: str) -> None:
        key = job_status.strip_suffixes(f"{name} {what}")
        if key not in self.warned:
            self.warned.add(key)
            print(f"{name:<12}  {what}", flush=True)

    def _pods(self, kind: str, name: str) -> Pods:
        """Return the pods of a Job or TrainJob, newest first."""
        label = "batch.kubernetes.io/job-name" if kind == "job" else job_status.JOBSET  # whose value is the name
        chosen = f"{label}={name}"
        listed = self._ask(
            lambda: self.core.list_namespaced_pod(self.namespace, label_selector=chosen, _request_timeout=ANSWER)
        )
        return sorted(listed.items, key=lambda pod: pod.metadata.creation_timestamp, reverse=True)

    def _warn(self, job: Object, pods: Pods) -> None:
        """Print the newest warning about a Job that is queued or whose pods do not run, once."""
        try:
            events = self._ask(
                lambda: self.core.list_namespaced_event(
                    self.namespace, field_selector="type=Warning", _request_timeout=ANSWER
                )
            )
        except UserError as error:  # a Role without events: not a reason to end the run
            warning = f"its events cannot be read: {error}"
        else:
            warning = job_status.newest_warning(job, pods, events.items)
        if warning:
            self._once(job["metadata"]["name"], f"warning: {warning}")

    def _failure(self, job: Object) -> Exception:
        """Return the error of a failed Job, with the output of its most relevant pod."""
        name, reason = job["metadata"]["name"], job_status.final_condition(job)
        assert reason is not None
        code, words = job_status.termination_message(self._pods(job_status.resource(job), name))
        for error in read_errors(words):
            if isinstance(error, UserError) and error.code == code:
                return add_stage_name(name, error)
        return StageFailed(
            f"stage {name}: its Job failed, {reason['reason']}: {reason['message']}"
            + (f"; a pod ended with exit code {code}; its last output:\n{words}" if code else "")
            + f"\nFix it, kubectl delete {job_status.resource(job)}/{name} job/{DRIVER}, and start the run again."
        )


def kind_of(members: StageRecords) -> str:
    """Return the kind of a Job's stages; the check of nodes, which is none, is as training."""
    return members[0].kind if members else "train"


def connect(namespace: str | None) -> tuple[Any, str]:
    """Return the client for pods, and the namespace, from a pod or a kubeconfig.

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
        current = WHOSE.read_text().strip()
    except (config.ConfigException, OSError):
        try:
            config.load_kube_config()
            _, active = config.list_kube_config_contexts()
        except (config.ConfigException, OSError) as error:
            raise ConfigError(
                f"no cluster is configured ({error}); set KUBECONFIG", "executor", "kubernetes"
            ) from error
        current = active["context"].get("namespace", "default")
    return client.CoreV1Api(), namespace or current


def job_exhausted(job: Object, members: StageRecords) -> str:
    """Return why a stage is not done although its Job is complete, and what to do."""
    again = f"kubectl delete {job_status.resource(job)}/{job['metadata']['name']} job/{DRIVER}, and start the run again"
    node = next(node for node in members if node.made() is None)
    manifest = Manifest.read(node.out)
    if manifest is None or datetime.datetime.fromisoformat(manifest.finished) < job_status.start_time(job):
        return f"it has to run ({node.reason}), but its Job has already completed; {again}"
    return f"its code or settings differ from the driver's; use images of one build, {again}"
