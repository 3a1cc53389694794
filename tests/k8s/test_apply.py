"""The server takes overlays as a user applies them."""

from pathlib import Path

import pytest
from control_plane import ControlPlane
from overlays import extended
from small import Small

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
