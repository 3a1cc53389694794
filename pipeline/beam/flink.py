"""Submission of a job to Flink as one jar through its REST interface, with cancellation.

Beam's own runner sends cancellations to an endpoint that Flink does not have.
"""

from typing import Any

import requests
from apache_beam.runners.portability import flink_runner, flink_uber_jar_job_server


class FlinkJob(flink_uber_jar_job_server.FlinkBeamJob):
    """Job on a Flink cluster."""

    def cancel(self) -> None:
        """Cancel the job."""
        place = f"{self._master_url}/v1/jobs/{self._flink_job_id}"
        requests.patch(place, params={"mode": "cancel"}, timeout=10)
        self.delete_jar()

    def root_exception(self) -> str:
        """Return why the job failed; empty if Flink does not know."""
        return str(self.get(f"v1/jobs/{self._flink_job_id}/exceptions").get("root-exception") or "")


class JobServer(flink_uber_jar_job_server.FlinkUberJarJobServer):
    """Job service within this process."""

    def create_beam_job(self, job_id: str, job_name: str, pipeline: Any, options: Any) -> FlinkJob:
        """Return a job that can be cancelled."""
        return FlinkJob(
            self._master_url,
            self.executable_jar(),
            job_id,
            job_name,
            pipeline,
            options,
            artifact_port=self._artifact_port,
        )


class FlinkRunner(flink_runner.FlinkRunner):
    """Beam's runner, with the job service above if the job is submitted as one jar."""

    def default_job_server(self, options: Any) -> Any:
        """Return the job service that the options select."""
        found = super().default_job_server(options)
        if isinstance(found, flink_uber_jar_job_server.FlinkUberJarJobServer):
            return JobServer(found._master_url, options)
        return found
