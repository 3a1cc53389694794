"""Fault injection: break a training job on two hosts, restart it, and report the outcome.

`python -m benchmarks.run.faults [CASE…]` (as root, for network namespaces) prints a Markdown row per
case: the seconds until every node had ended, their exit codes, the step from which the restarted
job resumed, and whether its final weights equal those of an undisturbed job bit for bit.
"""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.run.hosts import Host, Network, missing
from benchmarks.run.job import ROOT, Job, Process, below, launcher_process, rank_processes, wait
from benchmarks.small import make_work

STEPS, EVERY, BREAK = 60, 10, 25  # steps: total, between checkpoints, and before the fault
LIMITS = ("timeout=8", "watchdog=6")  # seconds
LATE = 60.0  # delay of a late node, in seconds


@dataclass
class Row:
    """Outcome of a case."""

    case: str
    ended: list[tuple[float, int]]  # seconds after the fault and exit code, of each node
    resumed: int  # step from which the next start resumed
    same: bool | None  # same weights as an undisturbed run; None if not comparable
    note: str = ""

    def markdown(self) -> str:
        """Return the outcome as a table row."""
        seconds = ", ".join(f"{seconds:.1f}" for seconds, _ in self.ended)
        codes = ", ".join(str(int(code)) for _, code in self.ended)
        after = f"step {self.resumed}" if self.resumed else "the start"
        result = {True: "the same", False: "**differs**", None: "—"}[self.same]
        return f"| {self.case} | {seconds} | {codes} | {after} | {result} | {self.note} |"


HEADER = "| fault | nodes end after (s) | exit codes | resumes from | result | |\n|---|---|---|---|---|---|"


@dataclass
class Bench:
    """Two hosts, their input, and the weights of an undisturbed run."""

    hosts: list[Host]
    folder: Path
    reference: str = ""

    @property
    def work(self) -> Path:
        """Return the folder of the vocabulary and shards."""
        return self.folder / "work"

    def job(self, name: str, *more: str) -> Job:
        """Return a job without starting it."""
        return Job(self.folder / name, self.work, (f"steps={STEPS}", f"save_every={EVERY}", *LIMITS, *more))

    def undisturbed(self) -> None:
        """Train once without faults, as the reference of every case."""
        job = self.job("undisturbed")
        wait(job.start(self.hosts))
        self.reference = job.weights()

    def restart(self, job: Job, case: str, ended: list[tuple[float, int]], note: str = "") -> Row:
        """Restart a broken job and compare its weights."""
        again = wait(job.start(self.hosts))
        if any(code for _, code in again):
            note += f" (the restart exited with {[code for _, code in again]})"
            return Row(case, ended, job.resumed_after(), False, note)
        return Row(case, ended, job.resumed_after(), job.weights() == self.reference, note)

    def broken(self, case: str, harm: Callable[[list[Process]], object], *more: str) -> Row:
        """Start a job, inject a fault, wait until all nodes have ended, and restart it."""
        job = self.job(re.sub(r"\W+", "-", case), *more)
        nodes = job.start(self.hosts)
        job.wait_for(BREAK, nodes)
        harm(nodes)
        ended = wait(nodes)
        for host in self.hosts:
            host.link("up")
        return self.restart(job, case, ended)


def rank_killed(bench: Bench) -> Row:
    """Send SIGKILL to a rank, as the kernel does when out of memory."""
    return bench.broken("a rank is killed (`kill -9`)", lambda nodes: rank_processes(nodes[1])[0].kill())


def node_killed(bench: Bench) -> Row:
    """Kill a node with all its processes."""
    row = bench.broken("a node is killed", lambda nodes: nodes[1].kill())
    row.note = "the second node is the killed one"
    return row


def link_down(bench: Bench) -> Row:
    """Cut the network without notifying either end."""
    return bench.broken("the link goes down", lambda nodes: bench.hosts[1].link("down"))


def rank_stopped(bench: Bench) -> Row:
    """Send SIGSTOP to a rank; end its node when the heartbeat is stale, like a liveness probe."""
    job = bench.job("stopped", f"heartbeat={bench.folder / 'beats'}")
    nodes = job.start(bench.hosts)
    job.wait_for(BREAK, nodes)
    rank_processes(nodes[1])[0].suspend()
    began = time.monotonic()
    (ended,) = wait(nodes[:1])
    probe = [sys.executable, "-m", "model.resilience.heartbeat", str(bench.folder / "beats"), "5"]
    probed = subprocess.run(probe, cwd=ROOT, capture_output=True, text=True, check=False)
    nodes[1].kill()
    wait(nodes[1:])
    second = (time.monotonic() - began, nodes[1].returncode)
    note = f"the probe ends the second node: {probed.stderr.strip()}"
    return bench.restart(job, "a rank is stopped (`kill -STOP`)", [ended, second], note)


def one_node_told(bench: Bench) -> Row:
    """Send SIGTERM to the first process of one node, as when its pod is preempted."""

    def node_signalled(nodes: list[Process]) -> None:
        (inside,) = [child for child, words in below(nodes[1]) if words[1:3] == ["-m", "model.launch"]]
        inside.terminate()

    return bench.broken("one node gets SIGTERM", node_signalled)


def one_rank_told(bench: Bench) -> Row:
    """Send SIGUSR1 to one rank."""
    return bench.broken("one rank gets SIGUSR1", lambda nodes: rank_processes(nodes[1])[0].send_signal(signal.SIGUSR1))


def launcher_killed(bench: Bench) -> Row:
    """Send SIGKILL to deepspeed's inner launcher; the outer one would then report success."""
    return bench.broken("deepspeed's own launcher is killed", lambda nodes: launcher_process(nodes[1]).kill())


def late_node(bench: Bench) -> Row:
    """Start a node a minute after the other; its name does not resolve at first."""
    job = bench.job("late")
    bench.hosts[1].resolves([])
    nodes = [job.start_one(bench.hosts, 1)]  # cannot even resolve node-0
    time.sleep(LATE / 2)
    bench.hosts[1].resolves(bench.hosts)
    time.sleep(LATE / 2)
    nodes.insert(0, job.start_one(bench.hosts, 0))
    ended = wait(nodes)
    same = all(code == 0 for _, code in ended) and job.weights() == bench.reference
    note = f"node-1 waited {LATE:.0f} s, half of it without node-0's name"
    return Row("a node is late, a name does not resolve yet", ended, 0, same, note)


def killed_saving(bench: Bench) -> Row:
    """Send SIGKILL to a run on one machine that saves after every step, at ten random moments."""
    job = Job(bench.folder / "saving", bench.work, (f"steps={STEPS}", "save_every=1"))
    draw, resumed = random.Random(0), []
    began = time.monotonic()
    for _ in range(10):
        before = len(job.losses())
        process = job.start_alone(1)
        job.wait_for(before + 2, [process])
        time.sleep(draw.uniform(0.0, 0.1))
        os.killpg(process.pid, signal.SIGKILL)
        wait([process])
        resumed.append(job.resumed_after())
    ended = (time.monotonic() - began, wait([job.start_alone(1)])[0][1])
    alone = Job(bench.folder / "unkilled", bench.work, (f"steps={STEPS}", "save_every=1"))
    wait([alone.start_alone(1)])
    note = f"each start resumed, from steps {', '.join(map(str, resumed))}"
    same = job.weights() == alone.weights()
    return Row("`kill -9` ten times while it saves", [ended], job.resumed_after(), same, note)


def unshared_folder(bench: Bench) -> Row:
    """Give each node a private folder under the same path."""
    job = bench.job("unshared")
    (job.folder / "train").mkdir(parents=True)
    private = ["sh", "-c", f'mount -t tmpfs none {job.out} && exec "$@"', "sh"]
    ended = wait([job.start_one(bench.hosts, number, before=private) for number in range(2)])
    (line,) = {line for line in job.log(1).read_text().splitlines() if line.startswith("error:")}
    note = line.replace(str(bench.folder), "…")
    return Row("the nodes share no checkpoint folder", ended, 0, None, f"`{note}`")


CASES: tuple[Callable[[Bench], Row], ...] = (
    rank_killed,
    node_killed,
    link_down,
    rank_stopped,
    one_node_told,
    one_rank_told,
    launcher_killed,
    late_node,
    killed_saving,
    unshared_folder,
)


def main() -> None:
    chosen = set(sys.argv[1:]) or {case.__name__ for case in CASES}
    why = missing()
    if why is not None:
        sys.exit(f"error: {why}")
    with tempfile.TemporaryDirectory() as folder, Network(2) as hosts:
        bench = Bench(hosts, Path(folder))
        make_work(bench.work)
        bench.undisturbed()
        print(HEADER, flush=True)
        for case in CASES:
            if case.__name__ in chosen:
                print(case(bench).markdown(), flush=True)


if __name__ == "__main__":
    main()
