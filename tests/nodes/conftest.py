"""The machines for the tests with ssh, and what their trainings are compared with."""

import pytest

from pipeline.errors import Exit
from tests.nodes.machines import missing
from tests.nodes.ssh_machines import LAUNCH, ssh_machines, weights


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    why = missing("sshd", "ssh", "pdsh")
    if why is not None:
        pytest.skip(why)
    with ssh_machines(tmp_path_factory.mktemp("ssh") / "lab") as lab:
        yield lab


@pytest.fixture(scope="session")
def reference(lab):
    """The final weights of two ranks on one machine."""
    out = lab.folder / "reference"
    done = lab.start([*LAUNCH, "--num_accelerators", "2", *lab.script(out)])
    assert done.wait() == Exit.DONE, done.text()
    return weights(out)
