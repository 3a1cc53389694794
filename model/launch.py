"""Launcher wrapper: `python -m model.launch deepspeed … model/train.py …`.

Runs a launcher (deepspeed, torchrun, or plain Python) and adds what these lack: it passes SIGTERM
only to the ranks, which have time to save instead of being killed after 30 seconds; it stops ranks
that their launcher left behind; and it reports the outcome in one exit code, the same for all
launchers (`pipeline.errors.Exit`). On one machine it selects a free port. DeepSpeed's own
log is left out unless `--log_level` asks for it.

With `deepspeed --hostfile HOSTS` and several hosts, it starts all of them over ssh: output lines
are prefixed with the host's name, signals reach all ranks, and if this process or a connection is
lost, all ranks save and leave.
"""

import os
import secrets
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from model.distributed.environment import GPUS, HOSTFILE, HOSTS, SECRET
from model.launching import ssh_hosts
from model.launching.command_line import LauncherCommand, rank_hosts, read_hosts
from model.launching.local_ranks import Launch
from pipeline.common import cores
from pipeline.console import output, terminal
from pipeline.errors import ConfigError, Exit, Restart, UserError

GPU_DEVICES = (cores.NVIDIA, Path("/dev/kfd"))  # of NVIDIA's and of AMD's driver


def launch_here(words: list[str], launch: Launch, folder: Path) -> int:
    """Run the launcher on this machine; return the exit code."""
    command = LauncherCommand.parse(words)
    if (text := os.environ.pop(HOSTFILE, None)) is not None:
        (folder / "hosts").write_text(text)
        command = command.adding("--hostfile", str(folder / "hosts"))
    path = command.hostfile()
    hosts = {} if path is None else read_hosts(path)
    if hosts:
        launch.environment.setdefault(HOSTS, rank_hosts(hosts))
    if command.is_alone() or len(hosts) == 1:  # other launchers of the same training would make another one
        launch.environment[SECRET] = os.environ.get(SECRET) or secrets.token_hex(16)
    counted = hosts or command.option("--num_gpus", "--num_accelerators") is not None
    if counted and os.environ.get("CUDA_VISIBLE_DEVICES"):  # deepspeed would say it ignores them
        launch.environment[GPUS] = os.environ.pop("CUDA_VISIBLE_DEVICES")
    if not any(device.exists() for device in GPU_DEVICES):
        # Otherwise every process of DeepSpeed warns about the missing GPU.
        launch.environment.setdefault("DS_ACCELERATOR", os.environ.get("DS_ACCELERATOR", "cpu"))
    launch.command = command.with_free_port().quiet().argv()
    code = launch.run()
    if code == Exit.RESTART:
        terminal.tell(Restart(launch.lost(), command.resuming))
    return code


def launch(words: list[str]) -> int:
    """Run a launcher, here or on several hosts; return the exit code.

    Raises:
        UserError: The command line, the hostfile or a host is invalid.
        Restart: Not all hosts were ready in time, or the training is to be resumed.
    """
    if words != ["--node"]:
        command = LauncherCommand.parse(words)
        path = command.hostfile()
        hosts = {} if path is None or HOSTFILE in os.environ else read_hosts(path)
        if len(hosts) > 1 and command.option("--no_ssh") is None:
            code = ssh_hosts.SshHosts(command, hosts).run()
            if code == Exit.RESTART:
                raise Restart("", command.resuming)
            return code
    # deepspeed's and torchrun's commands lie next to this Python, also where it is not activated.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    with tempfile.TemporaryDirectory(prefix="train-ranks-") as folder:
        here = Launch([], Path(folder))
        if words == ["--node"]:
            words, environment, text = ssh_hosts.receive(here.signals.append)
            os.environ |= {**environment, HOSTFILE: text}
        return launch_here(words, here, Path(folder))


def main() -> NoReturn:
    """Run the command."""
    output.outlive_readers()
    if sys.argv[1:2] in (["--help"], ["-h"]):
        print(__doc__, end="")
        sys.exit(Exit.DONE)
    if len(sys.argv) < 2:
        terminal.tell(ConfigError("a command is required: python -m model.launch deepspeed model/train.py …"))
        sys.exit(Exit.USER)
    try:
        sys.exit(launch(sys.argv[1:]))
    except (UserError, Restart) as error:
        terminal.tell(error)
        sys.exit(error.code)


if __name__ == "__main__":
    main()
