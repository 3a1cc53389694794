"""One training on several hosts: one ssh connection per host, one exit code.

Each host runs `python -m model.launch --node`, which reads from standard input: a line of JSON with
the command and its environment, then one line per signal. When its input ends, the terminal or the
connection is lost, and its ranks save and leave.
"""

import contextlib
import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from model.distributed.environment import HOSTS, RUN, SECRET
from model.distributed.rank_card import ROOT
from model.launching.command_line import LauncherCommand, rank_hosts
from model.launching.local_ranks import POLL, merge, note_signals
from pipeline.common.ports import free_port
from pipeline.errors import ConfigError, Exit, InputError, Restart

# The variables that are always sent, by their beginnings.
ALONG = re.compile(
    "NCCL_|GLOO_|UCX_|FI_|OMP_|MKL_|KMP_|TORCH_|PYTORCH_|WANDB_|HF_|DS_|DEEPSPEED_|PYTHONHASHSEED|"
    "CUDA_LAUNCH|CUDA_DEVICE_MAX|AWS_|GOOGLE_|AZURE_"
)

READY = "train-node-ready"  # first line from a host, with a port that is free on it
START_TIMEOUT = 1800.0  # as the setting `start_timeout` of training
AGAIN = 3.0  # seconds between ssh attempts to a host that does not answer
# Detect a disconnected host after half a minute.
OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3")
# ssh errors of a host that may still start.
LATE = re.compile(
    "timed out|No route to host|Connection refused|Connection reset|closed by remote|Network is unreachable|"
    "Connection closed by"
)
OURS = ("--hostfile", "-H", "--master_addr", "--master_port", "--ssh_port", "--launcher", "--no_ssh_check")
REFUSED = ("--include", "-i", "--exclude", "-e", "--num_nodes", "--num_gpus", "--num_accelerators", "--launcher_args")


@dataclass
class SshHost:
    """One host: its ssh process and output."""

    name: str
    remote: str  # the command line for the host's shell
    ssh: list[str]
    process: subprocess.Popen[str] = field(init=False)
    input: IO[str] | None = None  # of the process; None before its start
    port: int | None = None  # free on the host; None until it is ready
    errors: list[str] = field(default_factory=list)  # standard error, before it was ready
    readers: list[threading.Thread] = field(default_factory=list)
    tried: float = 0.0

    def open(self) -> None:
        """Start ssh."""
        self.errors, self.tried = [], time.monotonic()
        # In a new session: Ctrl-C must not end the connection before the ranks have saved.
        self.process = subprocess.Popen(
            [*self.ssh, self.name, self.remote],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.input = self.process.stdin
        self.readers = [_reader(self.process.stdout, self._hear), _reader(self.process.stderr, self._hear_error)]

    def tell(self, line: str) -> None:
        """Write a line to the host; a lost host is detected elsewhere."""
        with contextlib.suppress(OSError, ValueError):
            print(line, file=self.input, flush=True)

    def close(self) -> None:
        """Close the host's input: its ranks save and leave."""
        if self.input is not None:
            with contextlib.suppress(OSError):
                self.input.close()
            if self.port is None:  # still logging in: does not read its input
                self.process.terminate()

    def ended(self) -> int | None:
        """Return the exit code once ssh has ended and all its output is printed."""
        code = self.process.poll()
        if code is not None:
            for reader in self.readers:
                reader.join(timeout=5)
        return code

    def why(self) -> str:
        """Return the last error line from before the host was ready."""
        lines = [line for line in self.errors if line.strip()]
        return lines[-1] if lines else "no answer"

    def _hear(self, line: str) -> None:
        if self.port is None and line.startswith(f"{READY} "):
            self.port = int(line.split()[1])
        else:
            print(f"{self.name}: {line}", flush=True)

    def _hear_error(self, line: str) -> None:
        if self.port is None:
            self.errors.append(line)
        else:
            print(f"{self.name}: {line}", file=sys.stderr, flush=True)


def _reader(stream: IO[str] | None, hear: Callable[[str], None]) -> threading.Thread:
    def read() -> None:
        for line in stream or ():
            hear(line.rstrip("\n"))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


class SshHosts:
    """One training on all hosts of a hostfile."""

    def __init__(self, command: LauncherCommand, hosts: dict[str, int]):
        """Read what each host will be sent.

        Raises:
            ConfigError: an option of deepspeed would have another meaning here.
        """
        for name in REFUSED:
            if command.option(name) is not None:
                raise ConfigError("is not supported; list only the hosts and slots to use in --hostfile", name)
        if command.option("--launcher") not in (None, "pdsh", "ssh"):
            raise ConfigError(
                "cannot be combined with model.launch, which starts the hosts by ssh; remove one of them", "--launcher"
            )
        self.command, self.slots = command, hosts
        self.environment = variables_to_send(os.environ)  # read before a host waits for it
        port = command.option("--ssh_port")
        ssh = ["ssh", *OPTIONS, *(["-p", port] if port else [])]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        remote = (
            f"cd {shlex.quote(str(Path.cwd()))} && exec env PYTHONPATH={shlex.quote(path)} "
            f"{shlex.quote(sys.executable)} -m model.launch --node"
        )
        self.hosts = [SshHost(name, remote, ssh) for name in hosts]
        self.signals: list[int] = []  # signals received
        self.start_timeout = command.number("start_timeout", START_TIMEOUT)

    def run(self) -> int:
        """Run the command on all hosts until it has ended on each; return the exit code.

        Raises:
            UserError: A host is unreachable or not set up.
            Restart: A host was not ready in time, or a signal arrived before all were ready.
        """
        note_signals(self.signals)
        try:
            self._open()
            self._send()
            return self._follow()
        finally:
            for host in self.hosts:
                host.close()

    def _open(self) -> None:
        """Log in to all hosts; retry those that may still be starting."""
        until = time.monotonic() + self.start_timeout
        for host in self.hosts:
            host.open()
        while waiting := [host for host in self.hosts if host.port is None]:
            if self.signals:
                raise Restart(f"{signal.Signals(self.signals[0]).name} before the first step")
            for host in waiting:
                code = host.ended()
                late = code == 255 and LATE.search(host.why()) is not None
                if code is not None and host.port is None and not late:
                    cure = f"every host needs this working directory and the same Python, {sys.executable}"
                    if code == 255:
                        cure = "`ssh HOST true` must work from here without a prompt"
                    raise InputError(f"{host.why()}; {cure}", path=host.name)
                if code is not None and time.monotonic() - host.tried > AGAIN:
                    host.open()
            if time.monotonic() > until:
                names = ", ".join(host.name for host in waiting)
                raise Restart(f"{names} did not answer within {self.start_timeout:g} s ({waiting[0].why()})")
            time.sleep(POLL)

    def _send(self) -> None:
        """Send the command to all hosts."""
        command = self.command.without(*OURS)
        address = self.command.option("--master_addr") or self.hosts[0].name
        port = self.command.option("--master_port") or str(self.hosts[0].port)
        variables = {HOSTS: rank_hosts(self.slots), RUN: secrets.token_hex(4), SECRET: secrets.token_hex(16)}
        hostfile = "".join(f"{name} slots={n}\n" for name, n in self.slots.items())
        same = {"environment": self.environment | variables, "hostfile": hostfile}
        for number, host in enumerate(self.hosts):
            words = command.adding(
                "--no_ssh", "--node_rank", str(number), "--master_addr", address, "--master_port", port
            ).argv()
            host.tell(json.dumps({"command": words, **same}))

    def _follow(self) -> int:
        """Pass signals on until all hosts have ended; if one fails, stop the others."""
        codes: dict[str, int] = {}
        passed = 0
        while len(codes) < len(self.hosts):
            time.sleep(POLL)
            for host in self.hosts:
                code = host.ended() if host.name not in codes else None
                if code is None:
                    continue
                if code not in list(Exit):
                    lost = "connection lost" if code == 255 else f"exited with {code}"
                    print(f"{host.name}: {lost}", file=sys.stderr, flush=True)
                codes[host.name] = code
                if code != Exit.DONE:
                    self.signals.append(signal.SIGTERM)
            for number in self.signals[passed:]:
                for host in self.hosts:
                    if host.name not in codes:
                        host.tell(signal.Signals(number).name)
            passed = len(self.signals)
        return merge(codes.values())


def receive(on_signal: Callable[[int], None]) -> tuple[list[str], dict[str, str], str]:
    """Announce this host as ready and read its job; then listen for signals.

    Returns the command, its environment and the hostfile. Exits if no job arrives because another
    host failed.
    """
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


def variables_to_send(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables to send to the ranks on other hosts.

    Those of DeepSpeed's file `.deepspeed_env`, in the home folder and in the working directory,
    are added.

    Raises:
        ConfigError: A line of a file is not KEY=VALUE.
    """
    sent = {key: value for key, value in environment.items() if ALONG.match(key)}
    for folder in (Path.home(), Path.cwd()):
        path = folder / environment.get("DS_ENV_FILE", ".deepspeed_env")
        if path.is_file():
            sent |= _read(path)
    return sent


def _read(path: Path) -> dict[str, str]:
    """Read a file of KEY=VALUE lines, whose values are taken as they are, without a shell."""
    variables = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip().isidentifier():
            raise ConfigError("must be KEY=VALUE", path=path, line=number)
        variables[key.strip()] = value.strip()
    return variables
