"""Machines made of namespaces: a network, a host name, processes and mounts of their own; root.

`benchmarks.run.hosts` starts one command a host; these stay up, have daemons, and are looked at after a
command to see that it left nothing.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 400.0  # seconds after which something hangs


def missing(*tools):
    """Why machines cannot be made here; None where they can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    absent = [tool for tool in ("ip", "unshare", "nsenter", *tools) if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)}: not on this machine"
    words = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "true"]
    probe = subprocess.run(words, check=False, capture_output=True, text=True)
    return f"no namespaces here: {probe.stderr.strip()}" if probe.returncode else None


def run(*words):
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
    return done.stdout


def clone(folder):
    """What git has of the project, as a clone of it, with what is edited and not committed yet."""
    listed = run("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@dataclass
class Command:
    """A command on a machine, in a session of its own."""

    outer: "subprocess.Popen[bytes]"  # nsenter: it waits for the command
    log: Path

    def processes(self):
        """The command's own process first, then all below it."""
        try:
            below = psutil.Process(self.outer.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [child for child in below if child.name() not in ("setsid", "nsenter")]

    def interrupt(self, number):
        """Signal the command's process group, as a terminal does."""
        os.killpg(os.getpgid(self.processes()[0].pid), number)

    def named(self, *words):
        """The processes below it whose command line has all these words."""
        return [p for p in self.processes() if all(w in " ".join(p.cmdline()) for w in words)]

    def wait(self, seconds=LIMIT):
        """The exit code."""
        return self.outer.wait(seconds)

    def text(self):
        return self.log.read_text(errors="replace")

    def lines(self, start):
        return [line for line in self.text().splitlines() if line.startswith(start)]


@dataclass
class Machine:
    """One machine; `daemons` are shell lines that its first process runs."""

    name: str
    address: str
    namespace: str
    folder: Path  # its own files
    setup: list[str] = field(default_factory=list)  # shell lines of its first process
    first: "subprocess.Popen[bytes] | None" = None

    def boot(self):
        """Start its first process, which reaps all others."""
        script = "\n".join(
            [
                "set -e",
                f"hostname {self.name}",
                "mount -t proc proc /proc",
                "mount -t tmpfs none /dev/shm",
                f"mount --bind {self.folder}/hosts /etc/hosts",
                "test ! -e /root/.bashrc || mount --bind /dev/null /root/.bashrc",
                *self.setup,
                f"touch {self.folder}/up",
                "while :; do sleep 1; done",
            ]
        )
        (self.folder / "up").unlink(missing_ok=True)
        with (self.folder / "boot.log").open("ab") as log:
            enter = shlex.split(f"nsenter --net=/run/netns/{self.namespace} unshare --mount --uts --pid --fork")
            enter += shlex.split("--kill-child --propagation private bash -c")
            pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True}
            variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/root"}
            self.first = subprocess.Popen([*enter, script], env=variables, **pipes)
        up = self.folder / "up"
        wait_for(lambda: up.exists() or self.first.poll() is not None, "boot", 60)
        assert up.exists(), (self.folder / "boot.log").read_text()

    @property
    def init(self):
        """The first process, as this machine's parent sees it."""
        return psutil.Process(self.first.pid).children()[0].pid

    def enter(self, *words):
        """A command line that runs a command on it."""
        spaces = ("--net", "--mount", "--uts", "--pid")
        return ["nsenter", "-t", str(self.init), *spaces, "--", *words]

    def do(self, *words):
        """Run a short command on it."""
        return run(*self.enter(*words))

    def start(self, words, log, folder, environment=None):
        """Start a command in a folder, as a user with the project's Python does."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        inside = f"cd {shlex.quote(str(folder))} && exec {shlex.join(words)}"
        with log.open("wb") as file:
            variables = {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
            variables |= {"DS_ACCELERATOR": "cpu", **environment}
            pipes = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
            command = self.enter("setsid", "--wait", "bash", "-c", inside)
            outer = subprocess.Popen(command, env=variables, start_new_session=True, **pipes)
        return Command(outer, log)

    def processes(self, *words):
        """The processes on it whose command line has all these words; its first one is left out."""
        own, found = os.stat(f"/proc/{self.init}/ns/pid").st_ino, []
        for process in psutil.process_iter():
            try:
                line = " ".join(process.cmdline())
                inside = os.stat(f"/proc/{process.pid}/ns/pid").st_ino == own
            except (psutil.Error, OSError):
                continue
            if inside and line and process.pid != self.init and all(word in line for word in words):
                found.append(process)
        return found

    def running(self, *ignored):
        """The command lines of all processes on it but its first one and those that begin so."""
        lines = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                lines.append(" ".join(process.cmdline()))
        return [line for line in lines if line and not line.startswith(("sleep 1", *ignored))]

    def listens(self, port):
        """Return whether one of its processes serves a TCP port."""
        tables = [Path(f"/proc/{self.init}/net/{name}").read_text() for name in ("tcp", "tcp6")]
        return re.search(f":{port:04X} [0-9A-F]+:0000 0A ", "".join(tables)) is not None

    def link(self, state):
        """Plug the cable in (`up`) or out (`down`)."""
        run("ip", "link", "set", f"{self.namespace}v", state)

    def halt(self):
        """Kill all that runs on it."""
        if self.first is not None:
            self.first.kill()
            self.first.wait()


class Machines:
    """Machines on one bridge, until the `with` block ends."""

    def __init__(self, folder, *names):
        self._mark = f"m{os.getpid() % 100000}"
        self.folder = folder
        self.all = [
            Machine(name, f"10.231.0.{number + 1}", f"{self._mark}n{number}", folder / name)
            for number, name in enumerate(names)
        ]

    def __enter__(self):
        run("ip", "link", "add", self._mark, "type", "bridge")
        run("ip", "link", "set", self._mark, "up")
        names = "".join(f"{machine.address} {machine.name}\n" for machine in self.all)
        for machine in self.all:
            machine.folder.mkdir(parents=True)
            (machine.folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
            here, space = f"{machine.namespace}v", machine.namespace
            run("ip", "netns", "add", space)
            run("ip", "link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", space)
            run("ip", "link", "set", here, "master", self._mark, "up")
            run("ip", "-n", space, "address", "add", f"{machine.address}/24", "dev", "eth0")
            run("ip", "-n", space, "link", "set", "eth0", "up")
            run("ip", "-n", space, "link", "set", "lo", "up")
        return self.all

    def __exit__(self, kind, error, trace):
        for machine in self.all:
            machine.halt()
            subprocess.run(["ip", "netns", "del", machine.namespace], check=False)
        subprocess.run(["ip", "link", "del", self._mark], check=False)


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
