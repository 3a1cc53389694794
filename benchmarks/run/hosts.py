"""Network namespaces as hosts, each with address, host name, hosts file and processes. Needs root.

`with Network(2) as hosts:` gives hosts `node-0`, `node-1`, … on one bridge. A host's processes see
only each other and end with its first process, as in a container.
"""

import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType


def run(*command: str) -> str:
    """Run a command and return its output; raises CalledProcessError if it fails."""
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout


def missing() -> str | None:
    """Return why network namespaces are unavailable, or None if they work."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"probe-{os.getpid()}"
    try:
        run("ip", "netns", "add", name)
        run("ip", "netns", "exec", name, "unshare", "--mount", "--uts", "--pid", "--fork", "true")
        run("ip", "netns", "del", name)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"network namespaces do not work: {getattr(error, 'stderr', error)}"
    return None


@dataclass
class Host:
    """One network namespace."""

    name: str
    address: str
    namespace: str
    names: Path  # its hosts file

    def start(
        self, command: list[str], log: Path, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Run a command as the host's first process; the Popen has its exit code."""
        inside = (
            f"mount --bind {shlex.quote(str(self.names))} /etc/hosts && hostname {self.name} && "
            f"mount -t proc proc /proc && exec {shlex.join(command)}"
        )
        with log.open("wb") as file:
            return subprocess.Popen(
                [
                    *shlex.split("ip netns exec"),
                    self.namespace,
                    *shlex.split("unshare --mount --uts --pid --fork --kill-child sh -c"),
                    inside,
                ],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def link(self, state: str) -> None:
        """Set the host's link `up` or `down`, without notifying either end."""
        run("ip", "link", "set", f"{self.namespace}v", state)

    def resolves(self, hosts: list["Host"]) -> None:
        """Make these host names, and its own, resolve on this host."""
        lines = [f"{host.address} {host.name}\n" for host in {h.name: h for h in [self, *hosts]}.values()]
        self.names.write_text("127.0.0.1 localhost\n" + "".join(lines))  # in place: bind-mounted


class Network:
    """Context manager of hosts on a bridge."""

    def __init__(self, size: int):
        self._mark = f"b{os.getpid() % 100000}"
        self._folder = tempfile.TemporaryDirectory()
        self.hosts = [
            Host(
                name=f"node-{number}",
                address=f"10.177.0.{number + 1}",
                namespace=f"{self._mark}n{number}",
                names=Path(self._folder.name, f"hosts-{number}"),
            )
            for number in range(size)
        ]

    def __enter__(self) -> list[Host]:
        run("ip", "link", "add", self._mark, "type", "bridge")
        run("ip", "link", "set", self._mark, "up")
        for host in self.hosts:
            here, space = f"{host.namespace}v", host.namespace
            run("ip", "netns", "add", space)
            run("ip", "link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", space)
            run("ip", "link", "set", here, "master", self._mark, "up")
            run("ip", "-n", space, "address", "add", f"{host.address}/24", "dev", "eth0")
            run("ip", "-n", space, "link", "set", "eth0", "up")
            run("ip", "-n", space, "link", "set", "lo", "up")
            host.resolves(self.hosts)
        return self.hosts

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", host.namespace], check=False)
        subprocess.run(["ip", "link", "del", self._mark], check=False)
        self._folder.cleanup()
