"""DeepSpeed's own launcher on two machines trains to the weights of its replacement."""

import pytest

from pipeline.errors import Exit
from tests.nodes.ssh_machines import LAUNCH, ended, weights
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.ssh, pytest.mark.timeout(900)]


LISTED = {"MINE_COMMA": "one,two", "MINE_BLANK": "one two", "MINE_QUOTE": 'say "hi"', "MINE_DOLLAR": "$HOME/x"}
MANGLED = {"MINE_QUOTE": "say hi", "MINE_DOLLAR": "/root/x"}


def test_uneven_slots_and_the_file_of_variables(lab):
    """Both launchers send the file's variables to all ranks; only ours leaves them as they are."""
    (lab.project / ".deepspeed_env").write_text("".join(f"{k}={v}\n" for k, v in LISTED.items()))
    hostfile = lab.write_hosts("uneven", "node0", "node1", slots=(1, 2))
    found = []
    for start, variables in ((lab.plain, LISTED | MANGLED), (lab.launch, LISTED)):
        out = lab.folder / f"uneven-{len(found)}"
        command = start(out, "steps=20", hostfile=hostfile)
        wait_for(lambda: len(lab.ranks(0)) == 1 and len(lab.ranks(1)) == 2, "three ranks")
        for rank in (*lab.ranks(0), *lab.ranks(1)):
            assert variables.items() <= rank.environ().items()
        ended(lab, command, out, Exit.DONE, saved=False)
        found.append(weights(out))
    (lab.project / ".deepspeed_env").unlink()
    out = lab.folder / "even"
    command = lab.start([*LAUNCH, "--num_accelerators", "3", *lab.script(out, "steps=20")])
    ended(lab, command, out, Exit.DONE, saved=False)
    assert found == [weights(out)] * 2
