"""Training jobs on one or two hosts, for fault injection."""

import contextlib
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.run.hosts import Host
from benchmarks.small import settings
from model.tracking.metrics_file import read_metrics
from pipeline.common.ports import free_port
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import require_manifest
from pipeline.storage.checksums import sha256

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LIMIT = 180.0  # seconds after which a job hangs

Process = subprocess.Popen[bytes]


@dataclass
class Job:
    """A training below `folder`, on the output of `make_work`."""

    folder: Path
    work: Path
    more: tuple[str, ...] = ()

    @property
    def out(self) -> Path:
        """Return the train stage's folder."""
        return self.folder / "train"

    def command(self, number: int, nodes: int, launcher: str) -> list[str]:
        """Return node `number`'s command, through `model.launch` as in a container."""
        script = [str(ROOT / "model" / "train.py"), *settings(self.work, self.out), *self.more]
        if launcher == "torchrun":
            options = shlex.split(
                f"--nnodes {nodes} --nproc-per-node 1 --node-rank {number} --master-addr node-0 --master-port 29500"
            )
        else:
            hostfile = self.folder / "hostfile"
            hostfile.write_text("".join(f"node-{n} slots=1\n" for n in range(nodes)))
            options = shlex.split(
                f"--hostfile {hostfile} --no_ssh --node_rank {number} --master_addr node-0 --master_port 29500"
            )
        return [sys.executable, "-m", "model.launch", str(BIN / launcher), *options, *script]

    def start(self, hosts: list[Host], launcher: str = "deepspeed") -> list[Process]:
        """Start the job on all hosts."""
        return [self.start_one(hosts, number, launcher) for number in range(len(hosts))]

    def start_one(
        self, hosts: list[Host], number: int, launcher: str = "deepspeed", before: Sequence[str] = ()
    ) -> Process:
        """Start the job on one of the hosts, behind words of another command."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = self.command(number, len(hosts), launcher)
        environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        return hosts[number].start([*before, *command], self.log(number), environment)

    def start_alone(self, processes: int) -> Process:
        """Start the job on this machine, with deepspeed alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log(0).open("wb") as file:
            return subprocess.Popen(
                [
                    str(BIN / "deepspeed"),
                    *shlex.split(f"--num_accelerators {processes} --master_port {free_port()} model/train.py"),
                    *settings(self.work, self.out),
                    *self.more,
                ],
                cwd=ROOT,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self, number: int) -> Path:
        """Return the log file of node `number`."""
        return self.folder / f"node-{number}.log"

    def losses(self) -> list[float]:
        """Return the loss of every step so far."""
        return [row["loss"] for row in read_metrics(self.out) if row["kind"] == "train"]

    def wait_for(self, step: int, processes: list[Process]) -> None:
        """Wait until `step` steps are done.

        Raises:
            TimeoutError: A process ended before, or the steps take too long.
        """
        until = time.monotonic() + LIMIT
        while len(self.losses()) < step:
            if time.monotonic() > until or any(p.poll() is not None for p in processes):
                raise TimeoutError(f"no step {step}:\n{self.log(0).read_text()[-3000:]}")
            time.sleep(0.02)

    def weights(self) -> str:
        """Return the checksum of the final weights.

        Raises:
            InputError: The training has not finished.
        """
        manifest = require_manifest(self.out, "train", "out")
        return sha256(self.out / manifest.figures["checkpoint"] / checkpoint_folder.WEIGHTS)

    def resumed_after(self) -> int:
        """Return the step from which the last start resumed."""
        text = self.log(0).read_text()
        return int(text.partition("resumed after step ")[2].partition("\n")[0].replace(",", "") or 0)


def rank_processes(process: Process) -> list[psutil.Process]:
    """Return the training processes below a launcher."""
    return [child for child, words in below(process) if words[1:2] == ["-u"] and words[2].endswith("train.py")]


def below(process: Process) -> Iterator[tuple[psutil.Process, list[str]]]:
    """Yield the descendants of a process, and the words of each."""
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            yield child, child.cmdline()


def launcher_process(process: Process) -> psutil.Process:
    """Return deepspeed's inner launcher, the parent of the ranks."""
    parent = rank_processes(process)[0].parent()
    assert parent is not None
    return parent


def wait(processes: list[Process], most: float = LIMIT) -> list[tuple[float, int]]:
    """Wait until all have ended; return the seconds from now and the exit code of each.

    Raises:
        TimeoutError: A process hangs; all are killed.
    """
    began = time.monotonic()
    ended: dict[int, tuple[float, int]] = {}
    while len(ended) < len(processes):
        for number, process in enumerate(processes):
            if number not in ended and process.poll() is not None:
                ended[number] = (time.monotonic() - began, process.returncode)
        if time.monotonic() - began > most:
            for process in processes:
                process.kill()
            raise TimeoutError(f"still running after {most:g} s")
        time.sleep(0.02)
    return [ended[number] for number in range(len(processes))]
