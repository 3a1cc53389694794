"""What the driver makes of what the API server tells it."""

import datetime
import itertools
from types import SimpleNamespace

import pytest
import yaml

from pipeline.config import ExecutorConfig, ReportConfig
from pipeline.errors import ConfigError, Restart, UserError
from pipeline.orchestration import job_status, kubernetes, run_stage
from pipeline.orchestration.job_status import CRONJOBS, JOBS, Owner
from pipeline.orchestration.run_plan import Run, StageRecord
from tests.support import finished

client = pytest.importorskip("kubernetes.client", reason="the extra `kubernetes` is not installed")
BEGAN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def job(*conditions):
    """A Job that began at BEGAN."""
    listed = [{"type": kind, "status": status} for kind, status in conditions]
    return {
        "metadata": {"name": "report", "uid": "7"},
        "status": {"conditions": listed, "startTime": BEGAN.isoformat()},
    }


def pod(code, words):
    """A pod that ended."""
    ended = client.V1ContainerStateTerminated(exit_code=code, message=words)
    status = client.V1ContainerStatus(
        name="stage",
        image="i",
        image_id="",
        ready=False,
        restart_count=0,
        state=client.V1ContainerState(terminated=ended),
    )
    return client.V1Pod(status=client.V1PodStatus(container_statuses=[status]))


def node(out):
    """The report's stage."""
    config = ReportConfig(workdir=str(out.parent), out=str(out))
    return StageRecord(
        name="report", kind="report", config=config, needs=(), fingerprint="wanted", reason="not made yet"
    )


def write(out, fingerprint, ended):
    """A folder that a stage has made."""
    out.mkdir()
    finished.manifest("report", fingerprint=fingerprint, finished=ended.isoformat()).write(out)


def test_a_job_is_over_when_a_condition_says_so():
    assert job_status.final_condition(job()) is None
    assert job_status.final_condition(job(("Complete", "False"), ("Suspended", "True"))) is None
    over = job_status.final_condition(job(("FailureTarget", "True"), ("Failed", "True")))
    assert over["type"] == "Failed"


def test_a_pod_that_has_just_ended_has_run():
    status = {"ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["uid"]}}
    assert job_status.count_pods({"spec": {"completions": 4}, "status": status}) == (3, 4)
    assert job_status.count_pods({"spec": {}, "status": {}}) == (0, 1)


def test_bad_configuration_is_the_last_word_before_all_else():
    words = job_status.termination_message([pod(75, "peer lost"), pod(2, "error: typo"), pod(0, "")])
    assert words == (2, "error: typo")
    assert job_status.termination_message([pod(0, "done")]) == (0, "")


def test_a_complete_job_without_its_folder_is_used_up(tmp_path):
    members = [node(tmp_path / "report")]
    assert "kubectl delete job/report" in kubernetes.job_exhausted(job(), members)
    write(tmp_path / "report", "other", BEGAN - datetime.timedelta(hours=1))
    assert "already completed" in kubernetes.job_exhausted(job(), members)


def test_images_of_two_builds_are_named_as_the_cause(tmp_path):
    write(tmp_path / "report", "other", BEGAN + datetime.timedelta(minutes=1))
    assert "images" in kubernetes.job_exhausted(job(), [node(tmp_path / "report")])


def leaving(asked, grace, *marks):
    """A running pod that was asked to end some seconds after BEGAN."""
    due = BEGAN + datetime.timedelta(seconds=asked + grace)
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name="train-1-x", deletion_timestamp=due, deletion_grace_period_seconds=grace),
        spec=client.V1PodSpec(containers=[], node_name="n7"),
        status=client.V1PodStatus(
            phase="Running", conditions=[client.V1PodCondition(type=t, status=s, reason=r) for t, s, r in marks]
        ),
    )


@pytest.mark.parametrize(
    ("pod", "lost"),
    [
        (leaving(0, 600, ("DisruptionTarget", "True", "DeletionByTaintManager")), False),
        (
            leaving(0, 600, ("DisruptionTarget", "True", "DeletionByTaintManager"), ("Ready", "False", "NodeNotReady")),
            True,
        ),
        (leaving(0, 600, ("Ready", "False", "")), False),  # it saves
        (leaving(0, 30), True),  # far beyond its grace
        (leaving(90, 0), False),
    ],
)
def test_a_pod_whose_node_does_not_answer_is_named(pod, lost):
    said = job_status.lost_node(pod, BEGAN + datetime.timedelta(seconds=100))
    assert ("kubectl taint node n7 " in said) == lost


def event(reason, after, kind, name, uid=""):
    """A warning some seconds after BEGAN."""
    return client.CoreV1Event(
        metadata=client.V1ObjectMeta(name="e"),
        involved_object=client.V1ObjectReference(kind=kind, name=name, uid=uid),
        reason=reason,
        message=f"{reason} it is",
        type="Warning",
        last_timestamp=BEGAN + datetime.timedelta(seconds=after),
    )


def test_the_newest_warning_about_a_job_and_its_pods_is_said():
    report = job()
    mine = client.V1Pod(metadata=client.V1ObjectMeta(name="report-x"))
    found = [
        event("FailedMount", 20, "Pod", "report-x"),
        event("FailedCreate", 10, "Job", "report", "7"),
        event("FailedCreate", 30, "Job", "report", "an older Job of this name"),
        event("BackOff", 40, "Pod", "report-of-another"),
        event("FailedScheduling", 50, "Pod", "report-x"),  # a pod's own condition says it
    ]
    said = job_status.newest_warning(report, [mine], found)
    assert said == "pod report-x: FailedMount: FailedMount it is"
    assert job_status.newest_warning(report, [], found).startswith("job report: FailedCreate")
    early = [event("FailedCreate", -1, "Job", "report", "7")]
    assert job_status.newest_warning(report, [mine], early) == ""


def test_a_refusal_of_each_attempt_is_the_same_warning():
    first, second = (f'job train: FailedCreate: Pod "train-0-{end}" is invalid: 512Mi' for end in ("sbwgx", "44nnf"))
    assert job_status.strip_suffixes(first) == job_status.strip_suffixes(second)
    other = first.replace("512Mi", "256Mi")
    assert job_status.strip_suffixes(first) != job_status.strip_suffixes(other)
    assert "train-512" in job_status.strip_suffixes("pod train-512-0-44nnf: BackOff")


# The driver makes and follows Jobs, against an API server that is a list; tests/k8s has a real one.


pytest.importorskip("kubernetes.client", reason="the extra `kubernetes` is not installed")
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
OWNER = Owner("driver", "uid-of-the-driver")


class Cluster:
    """An API server with the templates of k8s/pretrain.yaml; Jobs are complete at the second look."""

    def __init__(self, root, folder):
        items = yaml.load_all((root / "k8s" / "pretrain.yaml").read_text(), yaml.CSafeLoader)
        self.templates = [item for item in items if item["kind"] == "CronJob"]
        self.folder, self.jobs, self.pods = folder, [], []
        self.made, self.numbers, self.ends = [], itertools.count(), True

    def find(self, kind):
        """The templates, and the Jobs; there is no Trainer."""
        if kind not in (CRONJOBS, JOBS):
            raise UserError("the API server rejects a request: Not Found")
        return self.templates if kind == CRONJOBS else self.listed()

    def create(self, item):
        """A Job, unless there is one of this name."""
        if item["metadata"]["name"] in [job["metadata"]["name"] for job in self.jobs]:
            return
        self.made.append(item)
        self.jobs.append(self.job(item))

    def job(self, item):
        """A Job as the API server has it."""
        known = {"uid": f"uid-{next(self.numbers)}", "creationTimestamp": NOW.isoformat()}
        status = {"ready": 1, "startTime": NOW.isoformat()}
        return {"metadata": {**item["metadata"], **known}, "spec": item["spec"], "status": status, "looks": 0}

    def listed(self):
        """All Jobs; the garbage collector has none of an owner that is gone."""
        for job in self.jobs:
            job["looks"] += 1
            if job["looks"] == 2 and self.ends:
                put_record(self.folder / job["metadata"]["name"])
                job["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
        found = list(self.jobs)
        known = {OWNER.uid, *(job["metadata"]["uid"] for job in self.jobs)}
        self.jobs = [
            job for job in self.jobs if {one["uid"] for one in job["metadata"].get("ownerReferences", [])} <= known
        ]
        return found

    def list_namespaced_pod(self, namespace, **more):
        """The pods, of which those that leave are gone at the next look."""
        found, self.pods = self.pods, []
        return SimpleNamespace(items=found)

    def list_namespaced_event(self, namespace, **more):
        """No warnings."""
        return SimpleNamespace(items=[])


def put_record(out):
    """A folder that a stage has made."""
    out.mkdir(exist_ok=True)
    finished.manifest("report", fingerprint=out.name, summary=f"{out.name} made", finished=NOW.isoformat()).write(out)


@pytest.fixture
def cluster(root, tmp_path, monkeypatch):
    made = Cluster(root, tmp_path)
    monkeypatch.setattr(kubernetes, "connect", lambda namespace: (made, "bert"))
    monkeypatch.setattr(kubernetes.job_status, "CustomObjects", lambda namespace: made)
    monkeypatch.setenv("BERT_DRIVER", OWNER.name)
    monkeypatch.setenv("BERT_DRIVER_UID", OWNER.uid)
    return made


def stage_of(cluster, name, kind, *needs):
    """A stage that has to run."""
    config = ReportConfig(workdir=str(cluster.folder), out=str(cluster.folder / name))
    return StageRecord(name=name, kind=kind, needs=needs, fingerprint=name, config=config, reason="not made yet")


def driver(cluster, *nodes, **settings):
    """The driver of these stages."""
    run = Run(
        workdir=str(cluster.folder),
        mirror=None,
        recipe="any",
        command="",
        cores=1,
        environment={},
        stages={one.name: one for one in nodes},
    )
    config = ExecutorConfig(name="kubernetes", poll=0.001, **settings)
    return kubernetes.KubernetesExecutor(config, run)


def of_a_recipe(cluster):
    """Stages that no manifest knows by name."""
    return [
        stage_of(cluster, "tasks-own", "tasks"),
        stage_of(cluster, "train-own", "train", "tasks-own"),
        stage_of(cluster, "report", "report", "train-own", "tasks-own"),
    ]


def test_jobs_of_any_recipe_are_made_of_the_templates_in_order(cluster, capsys):
    nodes = of_a_recipe(cluster)
    driver(cluster, *nodes, preflight=True).run(nodes)
    made = {item["metadata"]["name"]: item for item in cluster.made}
    assert [*made] == ["preflight", "tasks-own", "train-own", "report"]
    train = made["train-own"]
    assert train["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": OWNER.name, "uid": OWNER.uid}
    ]
    assert train["metadata"]["labels"].items() >= {(job_status.RUN, "driver"), (job_status.STAGE, "train-own")}
    environment = {one["name"]: one.get("value") for one in train["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert environment["BERT_RECORD"] == f"{cluster.folder}/run.json#train-own"
    assert train["spec"]["completions"] == made["preflight"]["spec"]["completions"] == 2
    said = capsys.readouterr().out
    assert "train-own     template train: pods 2 x GPUs 8, limits memory 128Gi, deadline 720 h 00 min" in said
    assert "report made" in said


def test_a_driver_that_is_restarted_makes_nothing_twice(cluster):
    nodes = of_a_recipe(cluster)[:2]
    first = driver(cluster, *nodes)
    template = job_status.choose(first._templates(), "tasks-own", "tasks")
    first._make(template, "tasks-own")
    first._make(template, "tasks-own")  # as if another driver had been quicker
    driver(cluster, *nodes).run(nodes)
    assert [item["metadata"]["name"] for item in cluster.made] == ["tasks-own", "train-own"]


def other(cluster, digest, owner):
    """A Job of an earlier run that has the name of a stage."""
    template = job_status.choose(job_status.templates_of(cluster.templates), "tasks", "tasks")
    return cluster.job(job_status.job_of(template, "tasks", digest, "/run.json", owner))


def test_a_job_of_an_earlier_run_is_waited_for_until_it_is_collected(cluster, capsys):
    nodes = [stage_of(cluster, "tasks", "tasks")]
    cluster.jobs = [other(cluster, "0a", Owner("driver", "gone"))]
    cluster.pods = [
        SimpleNamespace(
            metadata=SimpleNamespace(creation_timestamp=NOW, deletion_timestamp=None),
            status=SimpleNamespace(phase="Running"),
        )
    ]
    driver(cluster, *nodes).run(nodes)
    said = capsys.readouterr().out
    order = (
        "earlier run is about to be deleted",
        "waits for the end of 1 pods",
        "made of template light",
        "tasks made",
    )
    places = [said.index(words) for words in order]
    assert places == sorted(places)


def test_a_job_that_is_not_ours_ends_the_driver_with_a_line(cluster):
    nodes = [stage_of(cluster, "tasks", "tasks")]
    cluster.jobs = [other(cluster, "0a", None)]
    with pytest.raises(UserError, match=r"stage tasks: .*another run.*kubectl delete job tasks"):
        driver(cluster, *nodes).run(nodes)
    owner = other(cluster, "0a", None)
    owner["metadata"]["name"], cluster.made = "other", []
    cluster.jobs = [owner, other(cluster, "0a", Owner("other", owner["metadata"]["uid"]))]
    with pytest.raises(UserError, match=r"stage tasks: its Job belongs to job/other"):
        driver(cluster, *nodes).run(nodes)
    assert cluster.made == []


def test_a_changed_template_is_said_and_the_next_stage_takes_it(cluster, capsys):
    nodes = [stage_of(cluster, "tasks", "tasks"), stage_of(cluster, "convert", "convert", "tasks")]
    first = driver(cluster, *nodes)
    first._make(job_status.choose(first._templates(), "tasks", "tasks"), "tasks")
    light = next(item for item in cluster.templates if item["metadata"]["name"] == "light")
    light["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"] = "next:1"
    driver(cluster, *nodes).run(nodes)
    assert "its template has changed; to restart with it: kubectl delete job tasks" in capsys.readouterr().out
    images = [item["spec"]["template"]["spec"]["containers"][0]["image"] for item in cluster.made]
    assert images == ["bert-pipeline/trainer:0.2.0", "next:1"]


def test_a_stage_without_a_template_is_named_before_anything_runs(cluster):
    nodes = [stage_of(cluster, "tasks", "tasks"), stage_of(cluster, "more", "predict", "tasks")]
    with pytest.raises(ConfigError, match="no template lists stage more or kind predict"):
        driver(cluster, *nodes).run(nodes)
    cluster.templates.append(cluster.templates[0])
    with pytest.raises(ConfigError, match="both list stage tasks"):
        driver(cluster, *nodes[:1]).run(nodes[:1])
    assert cluster.made == []


def test_a_pod_reads_the_record_that_it_was_made_for(cluster, monkeypatch):
    record = driver(cluster, stage_of(cluster, "report", "report")).record
    record.write()
    words = ["run_stage", "--from", f"{cluster.folder}/run.json#report"]
    monkeypatch.setattr("sys.argv", words)
    monkeypatch.setattr(run_stage.entry_point, "run_guarded", lambda run: run())
    started = []
    monkeypatch.setattr(run_stage.os, "execv", lambda path, command: started.append(command))
    monkeypatch.setenv("BERT_DIGEST", record.digest("report"))
    with pytest.raises(SystemExit):
        run_stage.main()
    assert f"{cluster.folder}/run.json#report" in started[0]
    monkeypatch.setenv("BERT_DIGEST", "0a")
    with pytest.raises(Restart, match="made for"):
        run_stage.main()
    monkeypatch.delenv("BERT_DIGEST")
    (cluster.folder / "run.json").unlink()
    with pytest.raises(Restart, match="cannot be read"):
        run_stage.main()


def test_a_rank_serves_its_metrics_where_the_template_says(cluster, monkeypatch):
    monkeypatch.setenv("BERT_PROMETHEUS", "0.0.0.0:9464")
    monkeypatch.setattr(run_stage, "multi_node_options", lambda stage: [])
    train = stage_of(cluster, "train", "train")
    words = run_stage.pod_command([train], train, "/run.json")
    assert words[-2:] == ['tracking.prometheus_host="0.0.0.0"', "tracking.prometheus_port=9464"]
