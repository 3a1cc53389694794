"""Objects of the cluster as the API has them: the client library's models drop new fields.

A TrainJob of Kubeflow Trainer v2 makes a JobSet, which makes one Job with the pods: the counts of
pods are that Job's.
"""

from pipeline.orchestration.job_templates import Object

JOBSET = "jobset.sigs.k8s.io/jobset-name"  # label of a JobSet's Jobs and pods
ANSWER = (10.0, 30.0)  # connect and read timeouts of the API server, in seconds
CONDITIONS = {"Completed": "Complete"}  # names of conditions that differ from a Job's
JOBS = ("batch", "v1", "jobs")
CRONJOBS = ("batch", "v1", "cronjobs")
RUNTIMES = ("trainer.kubeflow.org", "v1alpha1", "trainingruntimes")
TRAINJOBS = ("trainer.kubeflow.org", "v1alpha1", "trainjobs")


class CustomObjects:
    """Objects of a namespace."""

    def __init__(self, namespace: str):
        from kubernetes import client

        self.api, self.namespace = client.CustomObjectsApi(), namespace

    def find(self, kind: tuple[str, str, str]) -> list[Object]:
        """Return all objects of a kind."""
        group, version, plural = kind
        listed = self.api.list_namespaced_custom_object(group, version, self.namespace, plural, _request_timeout=ANSWER)
        found: list[Object] = listed["items"]
        return found

    def create(self, item: Object) -> None:
        """Create an object; one that is there already stays, and the next look finds it."""
        from kubernetes.client.exceptions import ApiException

        place = (*item["apiVersion"].split("/"), self.namespace, f"{item['kind'].lower()}s")
        try:
            self.api.create_namespaced_custom_object(*place, item, _request_timeout=ANSWER)
        except ApiException as error:
            if error.status != 409:
                raise


def by_name(jobs: list[Object], trainjobs: list[Object]) -> dict[str, Object]:
    """Return Jobs by name, and TrainJobs as Jobs with the counts of those that have their pods."""
    children = {job["metadata"].get("labels", {}).get(JOBSET): job for job in jobs}
    found = [*jobs, *(as_job(item, children.get(item["metadata"]["name"], {})) for item in trainjobs)]
    return {job["metadata"]["name"]: {"status": {}, **job} for job in found}


def as_job(item: Object, child: Object) -> Object:
    """Return a TrainJob as a Job; `child` is the one that has its pods, or empty."""
    given = item.get("status", {}).get("conditions", [])
    conditions = [{**one, "type": CONDITIONS.get(one["type"], one["type"])} for one in given]
    spec = {"completions": child.get("spec", {}).get("completions"), **item["spec"]}
    status = {**child.get("status", {}), "conditions": conditions}
    return {**item, "spec": spec, "status": status, "child": child.get("metadata", {}).get("uid")}
