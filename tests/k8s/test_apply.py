"""The server takes overlays as a user applies them."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.k8s.control_plane import PROGRAMS, ControlPlane
from tests.k8s.documented import of_the_page, words
from tests.k8s.overlays import extended
from tests.k8s.small import Small

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(300)]


@pytest.mark.parametrize("overlay", ["site", "store"])
def test_a_label_chooses_what_is_applied(control: ControlPlane, root: Path, tmp_path: Path, overlay: str) -> None:
    control.namespace(f"apply-{overlay}")
    small = Small(control, f"apply-{overlay}", tmp_path, lambda job: None)
    folder = str(extended(root, tmp_path, overlay, "shell", "openshift"))
    apply = ("apply", "--validate=strict", "-k", folder, "-l")
    said = small.kubectl(*apply, "app.kubernetes.io/component!=driver")
    assert "pod/shell created" in said, said
    assert "cronjob.batch/light created" in said
    assert "serviceaccount/stage created" in said
    assert "job.batch/driver" not in said
    assert "rror" not in said, said
    small.kubectl("delete", "pod", "shell", "--force")
    said = small.kubectl(*apply, "app.kubernetes.io/component=shell")
    assert said == "pod/shell created\n"


def test_the_commands_of_the_page_work_in_their_order(control: ControlPlane, root: Path, tmp_path: Path) -> None:
    """But those of a TrainJob, and those that need a running pod: other tests have them."""
    extended(root, tmp_path, "site", "shell").rename(tmp_path / "k8s" / "overlays" / "mine")
    (tmp_path / "keys.env").write_text("HF_TOKEN=any\n")
    lines = [line for line in of_the_page(root) if "trainjob" not in line]
    run, left = [], {"wait", "cp"}
    for line in lines:
        if words(line)[0] in left:
            continue
        path = f"{PROGRAMS}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env={
                "PATH": path,
                "HOME": str(tmp_path),
                "KUBECONFIG": str(control.configuration("administrator", "bert")),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        run.append(words(line))
    assert {"create", "label", "-n", "apply", "delete"} == {each[0] for each in run}
    made = control.api().find("jobs", "bert")
    assert [job["metadata"]["name"] for job in made] == ["driver"]
