"""Check the nodes of a training in less than a minute, and name those that would spoil it.

python -m model.preflight FOLDER                                     this machine, one rank
python -m model.launch deepspeed --hostfile HOSTS model/preflight.py FOLDER

Measures GPUs and their drivers, matrix products, an all-reduce between the ranks, the links between
nodes, FOLDER (that of the run, also in a store), clocks and /dev/shm. Rank 0 prints one line for
each; exits with 0 if all are usable, 2 if a node is not, and 75 if not all ranks came.
"""

import argparse
import os
import socket
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median_high
from typing import NoReturn

if not __package__:  # run as a script: the packages are one level above its folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import torch.distributed as dist

from model.resilience import node_checks, process_group, rank_record, rendezvous
from model.resilience.gpus import require_gpu_of, require_gpus
from model.resilience.node_checks import Findings
from model.resilience.rank_card import describe
from model.training import device_peak
from pipeline.common import output
from pipeline.common.arguments import Arguments
from pipeline.common.errors import Exit, InputError, Restart, UserError, first_line
from pipeline.common.formatting import pluralize

CLOCK = 1.0  # seconds that clocks may differ: times of files are compared between nodes
SHM = 2**30  # bytes of /dev/shm that NCCL between the GPUs of a node needs
OPERATION = 180.0  # seconds that a rank may wait for another, which measures a slow disk
PRECISION = {True: "of bf16 products", False: "of fp32 products"}  # by whether there are GPUs


class NodesBad(InputError):
    """Nodes that would spoil a training."""


@dataclass(frozen=True)
class Identity:
    """What all ranks of one check share."""

    out: str = "preflight"


@dataclass(frozen=True)
class Line:
    """One printed line, and the nodes that are bad by it."""

    name: str
    text: str
    bad: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{'BAD' if self.bad else 'ok':<4} {self.name:<10}  {self.text}"


def check(places: list[str], wait: float, seconds: float) -> tuple[list[Findings], float, bool]:
    """Measure this rank; return the findings of all, the all-reduce's bytes/s, and if it was right.

    Raises:
        ConfigError: fewer GPUs are usable than the environment announces or ranks need.
        InputError, Restart: as `model.resilience.rendezvous.meet`.
    """
    for key, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1")):
        os.environ.setdefault(key, value)
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    require_gpus()
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        require_gpu_of(local)
        torch.cuda.set_device(device)
    backend, precision = ("nccl", "bf16") if device.type == "cuda" else ("gloo", "fp32")
    process_group.join(backend, describe(Identity(), "preflight"), wait, OPERATION, device)
    found = Findings(rendezvous.host_of(rank) or socket.gethostname(), rank, local)
    found.device = node_checks.device_name(device)
    found.flops = 1e12 * device_peak.measured(device, device_peak.TYPES[precision])
    found.shm = node_checks.shared_memory()
    moved, right = node_checks.all_reduce(device, seconds) if dist.get_world_size() > 1 else (0.0, True)
    found.clock = node_checks.clock_ahead()
    leaders = [number for number, first in process_group.gather((rank, local == 0)) if first]
    found.link = node_checks.link(leaders) if len(leaders) > 1 else 0.0
    if local == 0:
        node_checks.measure_places(found, places, seconds)
    if len(leaders) > 1 and places:
        node_checks.note_unshared(found, places[0], OPERATION)
    every = process_group.gather(asdict(found))
    return [Findings(**one) for one in every], moved, right


def judge(found: list[Findings], moved: float, right: bool, share: float) -> list[Line]:
    """Return a line for each thing measured; bad are nodes below `share` of the others' speed."""
    nodes = [one for one in found if one.local_rank == 0]
    gpus = found[0].device != "CPU"
    usual = Counter(one.device for one in found).most_common(1)[0][0]
    odd = sorted({f"{one.host} ({one.device})" for one in found if one.device != usual})
    text = f"{pluralize(len(found), 'rank')} on {pluralize(len(nodes), 'node')}: {usual}"
    lines = [Line("devices", "; ".join([text, *odd]), _hosts(f for f in found if f.device != usual))]
    speeds = {one.rank: one.flops for one in found}
    lines.append(_speed("compute", speeds, found, "TFLOP/s", 1e12, share if gpus else 0.0, PRECISION[gpus]))
    if len(found) > 1:
        over = "NCCL" if gpus else "gloo"
        wrong = "" if right else "; its sum is wrong: a GPU or a link damages data"
        text = f"{moved / 1e9:.2f} GB/s sent and received by each rank, over {over}{wrong}"
        lines.append(Line("all-reduce", text, () if right else _hosts(found)))
    if len(nodes) > 1:
        links = {one.rank: one.link for one in nodes}
        lines.append(_speed("links", links, nodes, "GB/s", 1e9, share, "between nodes, by TCP"))
        ahead = max(nodes, key=lambda one: abs(one.clock))
        bad = _hosts(one for one in nodes if abs(one.clock) > CLOCK)
        text = f"differ by {abs(ahead.clock):.3f} s at most ({ahead.host})"
        lines.append(Line("clocks", text, bad))
    for place in sorted({place for one in nodes for place in one.places}):
        for index, done in enumerate(("write", "read")):
            rates = {one.rank: one.places[place][index] for one in nodes if place in one.places}
            kept = [one for one in nodes if place in one.places]
            lines.append(_speed(done, rates, kept, "MB/s", 1e6, share, place))
    lines += [Line("folder", f"{one.host}: {fault}", (one.host,)) for one in found for fault in one.faults]
    least = min(nodes, key=lambda one: one.shm)
    small = _hosts(one for one in nodes if gpus and one.shm < SHM)
    lines.append(Line("/dev/shm", f"{least.shm / 2**30:.2f} GiB at least ({least.host})", small))
    return lines


def _speed(
    name: str, speeds: dict[int, float], found: list[Findings], unit: str, scale: float, share: float, what: str
) -> Line:
    """Return the line of a speed: the usual and the lowest one, and who is far below the others."""
    usual = median_high(speeds.values())
    slowest = min(found, key=lambda one: speeds[one.rank])
    bad = [one for one in found if speeds[one.rank] < share * usual]
    text = f"{usual / scale:.3g} {unit} {what}"
    if len(found) > 1:
        text += f", {speeds[slowest.rank] / scale:.3g} at least (rank {slowest.rank}, {slowest.host})"
    return Line(name, text, _hosts(bad))


def _hosts(found: Iterable[Findings]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.host for one in found))


def preflight(places: list[str], wait: float, seconds: float, share: float) -> None:
    """Run the check and print its lines on rank 0.

    Raises:
        NodesBad: on every rank, if one of the nodes is.
        ConfigError, Restart: as `check`.
    """
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    try:
        lines = judge(*check(places, wait, seconds), share)
    except UserError as error:
        raise error.but(where=rendezvous.name_of(rank)) from error
    except Exception as error:
        if size > 1 and process_group.is_peer_failure(error):
            raise Restart(f"a rank was lost during the check: {first_line(error)}") from error
        raise
    if rank == 0:
        print("\n".join(map(str, lines)), flush=True)
    dist.barrier()
    bad = {line.name: line.bad for line in lines if line.bad}
    if bad:
        said = "; ".join(f"{', '.join(hosts)} ({name})" for name, hosts in bad.items())
        raise NodesBad(f"bad nodes: {said}; repair or replace them before training", key="nodes")
    dist.destroy_process_group()


def leave(code: int) -> NoReturn:
    """End this rank; without waiting for lost ranks, as exit handlers could."""
    rank_record.end_rank(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> NoReturn:
    """Run the command."""
    parser = Arguments(
        "python -m model.preflight", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="*", metavar="FOLDER", help="that of the run, and others to measure")
    parser.add_argument("--wait", type=float, default=120.0, help="seconds for all ranks to come")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement, about")
    parser.add_argument("--share", type=float, default=0.3, help="of the others' speed, below which a node is bad")
    parser.add_argument("--local_rank", "--local-rank", help=argparse.SUPPRESS)  # of launchers
    options = parser.parse_args()
    output.outlive_readers()
    rank_record.begin_rank()
    try:
        preflight(options.places, options.wait, options.seconds, options.share)
    except UserError as error:
        if os.environ.get("LOCAL_RANK", "0") == "0" or not isinstance(error, NodesBad):
            print(f"error: {error}", file=sys.stderr)
        leave(error.code)
    except Restart as error:
        print(f"stopped: {error}", file=sys.stderr)
        leave(Exit.RESTART)
    except BaseException:
        rank_record.end_rank(Exit.BUG)
        raise
    leave(Exit.DONE)


if __name__ == "__main__":
    main()
