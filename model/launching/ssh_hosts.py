"""The same training on several hosts: one ssh each, one exit code for all.

On each host runs `python -m model.launch --node`. What it has to do comes through its standard
input: the command with its environment as a line of JSON, then a line for each signal. When that
input ends, the terminal or the connection is gone: its ranks save and leave.
"""

import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

from model.launching.command_line import LauncherCommand
from model.launching.local_ranks import POLL, merge
from model.resilience.rank_card import HOSTS, RUN
from model.resilience.watchdog import heard
from pipeline.common.errors import ConfigError, Exit, InputError, Restart, UserError

READY = "train-node-ready"  # what a host says first, with a port that is free there
ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT = 1800.0  # as the setting `start_timeout` of training
AGAIN = 3.0  # seconds until ssh is tried again on a host that does not answer
# A host that is cut off is noticed after half a minute.
OPTIONS = (
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    "ServerAliveInterval=10",
    "-o",
    "ServerAliveCountMax=3",
)
# What ssh says of a host that may come yet.
LATE = (
    "timed out", "No route to host", "Connection refused", "Connection reset", "closed by remote",
    "Network is unreachable", "Connection closed by",
)  # fmt: skip
# Settings of libraries that go along to the hosts.
ALONG = (
    "NCCL_", "GLOO_", "UCX_", "FI_", "OMP_", "MKL_", "KMP_", "TORCH_", "PYTORCH_", "WANDB_", "HF_",
    "DS_", "DEEPSPEED_", "PYTHONHASHSEED", "CUDA_LAUNCH", "CUDA_DEVICE_MAX", "AWS_",
)  # fmt: skip
OURS = ("--hostfile", "-H", "--master_addr", "--master_port", "--ssh_port", "--launcher",
        "--no_ssh_check")  # fmt: skip
REFUSED = ("--include", "-i", "--exclude", "-e", "--num_nodes", "--num_gpus", "--num_accelerators",
           "--launcher_args")  # fmt: skip


def along(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that the ranks on other hosts get too."""
    return {key: value for key, value in environment.items() if key.startswith(ALONG)}


@dataclass
class SshHost:
    """One host: an ssh, and what it says."""

    name: str
    remote: str  # the command line for the host's shell
    ssh: list[str]
    process: subprocess.Popen[str] | None = None
    port: int | None = None  # free on the host; None until it is ready
    said: list[str] = field(default_factory=list)  # on standard error, before it was ready
    readers: list[threading.Thread] = field(default_factory=list)
    tried: float = 0.0

    def open(self) -> None:
        """Start ssh."""
        self.said, self.tried = [], time.monotonic()
        # A session of its own: Ctrl-C must not end the connection before the ranks have saved.
        self.process = subprocess.Popen(
            [*self.ssh, self.name, self.remote], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.readers = [
            _reader(self.process.stdout, self._hear), _reader(self.process.stderr, self._hear_error)
        ]  # fmt: skip

    def tell(self, line: str) -> None:
        """Write a line to the host; one that is gone is noticed elsewhere."""
        assert self.process is not None
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    def close(self) -> None:
        """Let go of the host: what runs there saves and leaves."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            if self.port is None:  # it is still logging in, and does not look at its input
                self.process.terminate()

    def ended(self) -> int | None:
        """Return the exit code when ssh has ended and all that it said is printed."""
        assert self.process is not None
        code = self.process.poll()
        if code is not None:
            for reader in self.readers:
                reader.join(timeout=5)
        return code

    def why(self) -> str:
        """Return the last thing that was said before the host was ready."""
        lines = [line for line in self.said if line.strip()]
        return lines[-1] if lines else "no answer"

    def _hear(self, line: str) -> None:
        if self.port is None and line.startswith(f"{READY} "):
            self.port = int(line.split()[1])
        else:
            print(f"{self.name}: {line}", flush=True)

    def _hear_error(self, line: str) -> None:
        if self.port is None:
            self.said.append(line)
        else:
            print(f"{self.name}: {line}", file=sys.stderr, flush=True)


def _reader(stream: IO[str], hear: Callable[[str], None]) -> threading.Thread:
    def read() -> None:
        for line in stream:
            hear(line.rstrip("\n"))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


class SshHosts:
    """A training on all hosts of a hostfile."""

    def __init__(self, command: LauncherCommand, hosts: dict[str, int]):
        self.check(command)
        self.command, self.slots = command, hosts
        port = command.option("--ssh_port")
        ssh = ["ssh", *OPTIONS, *(["-p", port] if port else [])]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        remote = (
            f"cd {shlex.quote(str(Path.cwd()))} && exec env PYTHONPATH={shlex.quote(path)} "
            f"{shlex.quote(sys.executable)} -m model.launch --node"
        )
        self.hosts = [SshHost(name, remote, ssh) for name in hosts]
        self.told: list[int] = []  # signals that came
        self.patience = float(command.setting("start_timeout") or START_TIMEOUT)

    @staticmethod
    def check(command: LauncherCommand) -> None:
        """Refuse options of deepspeed's that would mean something else here.

        Raises:
            ConfigError: there is one.
        """
        for name in REFUSED:
            if command.option(name) is not None:
                raise ConfigError(
                    f"{name}: write the hosts and slots that you want into the file of --hostfile",
                    key=name.lstrip("-"),
                )
        if command.option("--launcher") not in (None, "pdsh", "ssh"):
            raise ConfigError(
                "--launcher: model.launch starts the hosts by ssh itself; leave it out, or leave "
                "model.launch out",
                key="launcher",
            )

    def run(self) -> int:
        """Run the command on all hosts, and wait until it has ended on all; the exit code.

        Raises:
            UserError: a host cannot be reached, or lacks what it needs.
            Restart: a host did not come in time; or a signal came before all were there.
        """
        for number in heard():
            signal.signal(number, self._hear)
        try:
            self._open()
            self._send()
            return self._follow()
        finally:
            for host in self.hosts:
                host.close()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.told.append(number)

    def _open(self) -> None:
        """Log in to all hosts; one that does not answer may come yet."""
        until = time.monotonic() + self.patience
        for host in self.hosts:
            host.open()
        while waiting := [host for host in self.hosts if host.port is None]:
            if self.told:
                raise Restart(f"{signal.Signals(self.told[0]).name} before the first step")
            for host in waiting:
                code = host.ended()
                late = code == 255 and any(word in host.why() for word in LATE)
                if code is not None and host.port is None and not late:
                    raise InputError(f"{host.name}: {host.why()}; {self._advice(code)}")
                if code is not None and time.monotonic() - host.tried > AGAIN:
                    host.open()
            if time.monotonic() > until:
                names = ", ".join(host.name for host in waiting)
                raise Restart(
                    f"{names} did not come within {self.patience:g} s ({waiting[0].why()})"
                )
            time.sleep(POLL)

    @staticmethod
    def _advice(code: int) -> str:
        if code == 255:
            return "`ssh HOST true` has to work from here, without a question"
        return f"every host needs the same folder and the same Python, {sys.executable}"

    def _send(self) -> None:
        """Tell all hosts what to run."""
        command = self.command.without(*OURS)
        address = self.command.option("--master_addr") or self.hosts[0].name
        port = self.command.option("--master_port") or str(self.hosts[0].port)
        environment = along(dict(os.environ))
        environment |= {HOSTS: ",".join(self.slots), RUN: secrets.token_hex(4)}
        for number, host in enumerate(self.hosts):
            words = command.adding(
                "--no_ssh", "--node_rank", str(number), "--master_addr", address,
                "--master_port", port,
            ).words()  # fmt: skip
            job = {
                "command": words,
                "environment": environment,
                "hostfile": "".join(f"{name} slots={n}\n" for name, n in self.slots.items()),
            }
            host.tell(json.dumps(job))

    def _follow(self) -> int:
        """Pass signals on until all hosts have ended; when one fails, the others save and leave."""
        codes: dict[str, int] = {}
        passed = 0
        while len(codes) < len(self.hosts):
            time.sleep(POLL)
            for host in self.hosts:
                code = host.ended() if host.name not in codes else None
                if code is None:
                    continue
                if code not in list(Exit):
                    lost = "the connection was lost" if code == 255 else f"ended with {code}"
                    print(f"{host.name}: {lost}", file=sys.stderr, flush=True)
                codes[host.name] = code
                if code != Exit.DONE:
                    self.told.append(signal.SIGTERM)
            for number in self.told[passed:]:
                for host in self.hosts:
                    if host.name not in codes:
                        host.tell(signal.Signals(number).name)
            passed = len(self.told)
        return merge(codes.values())


def receive(on_signal: Callable[[int], None]) -> tuple[list[str], dict[str, str], str]:
    """Be the host's end: say that it is ready, and read what to do; then hear signals.

    Returns the command, its environment and the hostfile. Exits where nothing comes: another host
    failed.
    """
    from model.launching.command_line import free_port

    print(f"{READY} {free_port()}", flush=True)
    line = sys.stdin.readline()
    if not line:
        sys.exit(Exit.RESTART)
    job = json.loads(line)

    def hear() -> None:
        for word in sys.stdin:
            on_signal(signal.Signals[word.strip()])
        on_signal(signal.SIGHUP)

    threading.Thread(target=hear, daemon=True).start()
    return job["command"], job["environment"], job["hostfile"]


def failure(error: UserError | Restart) -> int:
    """Print what ended the start, and return the exit code."""
    kind = "error" if isinstance(error, UserError) else "stopped"
    print(f"{kind}: {error}", file=sys.stderr, flush=True)
    return error.code if isinstance(error, UserError) else Exit.RESTART
