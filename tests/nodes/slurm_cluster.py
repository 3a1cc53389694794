"""A Slurm cluster of two nodes and a controller: machines of namespaces, with real daemons."""

import contextlib
import os
import re
import secrets
import shlex
import stat
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from tests.nodes.machines import Machine, Machines, clone, kill
from tests.support.waiting import wait_for

GPUS = 8  # that each node seems to have
# Before a library that only training imports: a node that is held is late, or never comes.
GATE = """
import os, pathlib, socket, time
_start = os.environ.get("SLURM_RESTART_COUNT", "0")
while pathlib.Path(f"{folder}/hold-{{socket.gethostname()}}-{{_start}}").exists():
    time.sleep(0.1)
"""
CONF = """
ClusterName=test
SlurmctldHost=ctl
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=10,socket={folder}/munge/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmctldTimeout=20
SlurmdTimeout=20
ReturnToService=2
KillWait=60
MinJobAge=7200
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
GresTypes=gpu
NodeName=n0 NodeAddr=n0 CPUs=32 RealMemory=10000 Gres=gpu:8 Features=h100
NodeName=n1 NodeAddr=n1 CPUs=32 RealMemory=10000 Gres=gpu:8 Features=h100
PartitionName=main Nodes=n0,n1 Default=YES PriorityTier=1 PreemptMode=REQUEUE
PartitionName=gpu Nodes=n0,n1 PriorityTier=1 PreemptMode=REQUEUE
PartitionName=cancelled Nodes=n0,n1 PriorityTier=1 PreemptMode=CANCEL GraceTime=40
PartitionName=urgent Nodes=n0,n1 PriorityTier=10 PreemptMode=OFF
"""


@dataclass
class Cluster:
    """The machines, the clone, and what its users type."""

    controller: Machine
    nodes: list[Machine]
    folder: Path
    project: Path

    @property
    def environment(self):
        return {"SLURM_CONF": f"{self.folder}/slurm.conf", "TMPDIR": f"{self.folder}/tmp"}

    def start(self, *words):
        """Start a command on the controller's machine, where users log in."""
        log = self.folder / f"command-{secrets.token_hex(4)}.log"
        return self.controller.start(words, log, self.project, self.environment)

    def ask(self, *words):
        """What a short command prints; one of Slurm's may wait for ever."""
        command = self.start("timeout", "60", *words)
        assert command.wait() == 0, f"{words}: {command.text()}"
        said = command.text()
        command.log.unlink()
        return said

    def jobs(self):
        """All jobs that Slurm knows, the newest last."""
        time.sleep(0.5)  # those who wait ask again and again
        shown = self.ask("scontrol", "--oneliner", "show", "job")
        found = [dict(re.findall(r"([\w/]+)=(\S*)", line)) for line in shown.splitlines()]
        return sorted((job for job in found if "JobId" in job), key=lambda job: int(job["JobId"]))

    def job(self, name, workdir):
        """The newest job of a stage of a run; empty where there is none yet."""
        named = [job for job in self.jobs() if job["JobName"] == f"bert-{name}" and workdir_of(job) == str(workdir)]
        return named[-1] if named else {}

    def running(self, name, workdir):
        """Wait until a stage's job runs."""
        wait_for(lambda: self.job(name, workdir).get("JobState") == "RUNNING", f"{name} runs", 900)
        return self.job(name, workdir)

    def restarts(self, job):
        """How often a job was queued again."""
        (found,) = [found for found in self.jobs() if found["JobId"] == job]
        return int(found["Restarts"])

    def cancel(self, *workdirs):
        """Cancel all jobs of some runs, and wait for their end."""
        runs = [str(workdir) for workdir in workdirs]
        mine = [job["JobId"] for job in self.jobs() if workdir_of(job) in runs]
        self.ask("scancel", *mine)
        self.idle()

    def stop_node(self, node):
        """Kill all that runs on a node."""
        while node.running():
            for process in node.processes():
                with contextlib.suppress(psutil.Error, ProcessLookupError):  # ended with its parent
                    if process.name() != "sleep":  # that of the machine's first process
                        kill(process)

    def hold(self, node, start):
        """Keep a node from joining any training's start (counted from 0) until the file is gone."""
        path = self.folder / f"hold-{node.name}-{start}"
        path.touch()
        return path

    def start_node(self, node):
        environment = self.environment | {"LANG": "C.UTF-8"}
        with (self.folder / f"{node.name}.out").open("ab") as log:
            command, variables = node.enter("setsid", "slurmd", "-D", "-N", node.name), {"PATH": os.environ["PATH"]}
            pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            subprocess.Popen(command, env=environment | variables, **pipes)

    def idle(self):
        """Wait until no node runs anything of a job."""
        for node in self.nodes:
            wait_for(
                lambda node=node: not node.running("slurmd", "/usr/sbin/slurmd"),
                f"an end of {node.running('slurmd', '/usr/sbin/slurmd')} on {node.name}",
                60,
            )


def workdir_of(job):
    """The folder of a job's run, which its comment has before a digest."""
    return job.get("Comment", "").partition("#")[0]


def module(name):
    """Return the path of a file of DeepSpeed, without importing it."""
    (found,) = [f for f in metadata.files("deepspeed") or [] if str(f) == name]
    return os.path.realpath(found.locate())


@contextmanager
def slurm_cluster(folder):
    for name in ("munge", "state", "tmp", "spool-n0", "spool-n1"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    (folder / "slurm.conf").write_text(CONF.format(folder=folder))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-7]\n")
    for number in range(GPUS):  # Slurm wants devices; nothing opens them
        os.mknod(folder / f"gpu{number}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    imported = module("deepspeed/__init__.py")
    munged = subprocess.Popen(
        shlex.split(
            f"munged --foreground --force --socket={folder}/munge/socket --key-file={key} "
            f"--pid-file={folder}/munge/pid --log-file={folder}/munge/log --seed-file={folder}/munge/seed"
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for((folder / "munge" / "socket").exists, "munged", 60)
        with Machines(folder / "machines", "ctl", "n0", "n1") as machines:
            for machine in machines:
                machine.boot()
            made = Cluster(machines[0], machines[1:], folder, clone(folder / "clone"))
            daemon = made.start("slurmctld", "-D")
            gate = folder / "gate.py"
            gate.write_text(GATE.format(folder=folder) + Path(imported).read_text())
            for node in made.nodes:
                node.do("mount", "--bind", str(gate), imported)
                made.start_node(node)
            wait_for(
                lambda: (
                    "idle" in made.ask("sinfo", "--noheader", "--format=%T")
                    and "down" not in made.ask("sinfo", "--noheader", "--format=%T")
                ),
                "nodes",
                120,
            )
            yield made
            kill(daemon.processes()[0])
    finally:
        munged.kill()
        munged.wait()
