"""Two machines that one may log in to with a real sshd, and a clone of the project on both."""

import shlex
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.small import make_work, settings
from model.tracking.metrics_file import read_metrics
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import require_manifest
from pipeline.storage.checksums import sha256
from tests.docs.fences import commands
from tests.nodes.machines import ROOT, Machine, Machines, clone, run
from tests.support.waiting import wait_for

STEPS = 300
LAUNCH = ("python", "-m", "model.launch", "deepspeed")
PAGE = [line for line in commands(ROOT / "docs" / "ssh.md") if not line.startswith("#")]
LIMITS = ("timeout=200", "watchdog=250", "start_timeout=400")
SSHD = """
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {keys}/key.pub
PidFile {folder}/sshd.pid
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
MaxStartups 100
SetEnv TMPDIR={folder}/tmp
"""
SSH = """
IdentityFile {keys}/key
UserKnownHostsFile {folder}/known_hosts
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
"""


@dataclass
class Lab:
    """The machines, the clone, and a small training."""

    machines: list[Machine]
    folder: Path
    project: Path

    @property
    def hostfile(self):
        return self.write_hosts("hosts", *(machine.name for machine in self.machines))

    def write_hosts(self, name, *hosts, slots=(1, 1)):
        path = self.folder / name
        lines = [f"{host} slots={number}\n" for host, number in zip(hosts, slots, strict=True)]
        path.write_text("".join(lines))
        return path

    def script(self, out, *more):
        own = [f"steps={STEPS}", "save_every=1000", *LIMITS, *more]
        return ["model/train.py", *settings(self.folder / "work", out), *own]

    def launch(self, out, *more, options=(), hostfile=None, environment=None):
        """The recommended command, started on the first machine."""
        words = [*LAUNCH, "--hostfile", str(hostfile or self.hostfile)]
        return self.start([*words, *options, *self.script(out, *more)], environment)

    def plain(self, out, *more, options=(), hostfile=None):
        """DeepSpeed's own launcher."""
        words = ["deepspeed", "--hostfile", str(hostfile or self.hostfile), *options]
        return self.start([*words, *self.script(out, *more)])

    def page(self, start, out, number=0):
        """The page's only command that begins so, with the names and the training of this lab."""
        (line,) = [line for line in PAGE if line.startswith(start)]
        names = {"HOSTS": str(self.hostfile), "N": str(number), "FIRST_NODE": "node0"}
        words = [names.get(word, word) for word in shlex.split(line)]
        script = words.index("model/train.py")
        return [*words[:script], *self.script(out)]

    def start(self, words, environment=None):
        number = len(list(self.folder.glob("command-*.log")))
        log = self.folder / f"command-{number}.log"
        first = self.machines[0]
        temporary = {"TMPDIR": f"{first.folder}/tmp"}
        return first.start(words, log, self.project, temporary | (environment or {}))

    def ranks(self, number):
        """The training processes on a machine."""
        return self.machines[number].processes("--local_rank", "train.py")

    def rank(self, number):
        """The only training process on a machine."""
        (found,) = self.ranks(number)
        return found

    def nothing_left(self):
        """Wait until no machine runs anything but its daemon, and no temporary folder is there."""
        for machine in self.machines:
            wait_for(
                lambda machine=machine: not machine.running("sshd: /usr/sbin/sshd -f"),
                f"an end of {machine.running('sshd: /usr/sbin/sshd -f')} on {machine.name}",
                60,
            )
            left = {path.name for path in (machine.folder / "tmp").iterdir()}
            # PyTorch's cache of compiled code is for the next process.
            assert left <= {"torchinductor_root"}, machine.name


def losses(out):
    return sum(row["kind"] == "train" for row in read_metrics(out))


def steps(out):
    """The checkpoints."""
    return sorted(int(path.name[5:]) for path in out.glob("checkpoints/*/step-*"))


def newest(out):
    """The step of the last checkpoint; 0 where there is none."""
    return max([*steps(out), 0])


def weights(out):
    manifest = require_manifest(out, "train", "out")
    return sha256(out / manifest.figures["checkpoint"] / checkpoint_folder.WEIGHTS)


@contextmanager
def ssh_machines(folder):
    keys = folder / "keys"
    keys.mkdir(parents=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / "key"))
    with Machines(folder, "node0", "node1") as machines:
        known = ""
        for machine in machines:
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{machine.folder}/host_key")
            public = (machine.folder / "host_key.pub").read_text().split()[:2]
            known += f"{machine.name} {' '.join(public)}\n"
        for machine in machines:
            values = {"address": machine.address, "folder": machine.folder, "keys": keys}
            (machine.folder / "sshd_config").write_text(SSHD.format(**values))
            (machine.folder / "ssh_config").write_text(SSH.format(**values))
            (machine.folder / "known_hosts").write_text(known)
            (machine.folder / "tmp").mkdir()
            machine.setup = [
                "mkdir -p /run/sshd",
                f"mount --bind {machine.folder}/ssh_config /etc/ssh/ssh_config",
                f"/usr/sbin/sshd -f {machine.folder}/sshd_config",
            ]
            machine.boot()
        lab = Lab(machines, folder, clone(folder / "clone"))
        make_work(folder / "work")
        yield lab


def train_on(lab, *settings, more=8):
    """Start the run that is disturbed again and again, and wait for some more steps of it."""
    out = lab.folder / "train"
    if (out / "manifest.json").exists():  # a test before this one failed, and let it end
        shutil.rmtree(out)
    command, before = lab.launch(out, *settings), newest(out)

    def learnt():
        assert command.outer.poll() is None, command.text()
        return f"step {before + more}/" in command.text()

    wait_for(learnt, f"step {before + more}")
    return command, out


def ended(lab, command, out, code, saved):
    """The run has ended with `code` and left nothing; `saved`: with a newer checkpoint."""
    before = newest(out)
    assert command.wait() == code, command.text()
    lab.nothing_left()
    assert "Traceback" not in command.text()
    if saved:
        assert newest(out) == losses(out) >= before
        assert "saved after step" in command.text()
