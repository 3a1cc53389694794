"""Check the nodes of a training in less than a minute, and name those that would spoil it.

python -m model.preflight                                            this machine, one rank
python -m model.launch deepspeed --hostfile HOSTS model/preflight.py

Measures matrix products and an all-reduce between the ranks. Rank 0 prints one line for each; exits
with 0 if all nodes are usable, 2 if one is not, and 75 if not all ranks came.
"""

import argparse
import os
import socket
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median_high
from typing import NoReturn

if not __package__:  # run as a script: the packages are one level above its folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import pipeline  # noqa: F401  # its one line for a library that is not installed

import torch
import torch.distributed as dist

from model.distributed import process_group, rendezvous
from model.distributed.gpus import device_of_rank
from model.distributed.rank_card import describe
from model.encoders.device import TYPES
from model.resilience import rank_record
from model.training import device_peak
from pipeline.common.schema import StageConfig
from pipeline.console import terminal
from pipeline.console.arguments import Arguments
from pipeline.console.formatting import pluralize
from pipeline.errors import Exit, InputError, Restart, UserError, first_line

OPERATION = 180.0  # seconds that a rank may wait for another


class NodesBad(InputError):
    """Nodes that would spoil a training."""


@dataclass(frozen=True)
class Line:
    """One printed line, and the nodes that are bad by it."""

    name: str
    text: str
    bad: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{'BAD' if self.bad else 'ok':<4} {self.name:<10}  {self.text}"


def check(wait: float, seconds: float, share: float) -> list[Line]:
    """Measure this rank; return a line for each thing measured on all of them.

    Raises:
        ConfigError: fewer GPUs are usable than the environment announces or ranks need.
        InputError, Restart: as `model.distributed.rendezvous.meet`.
    """
    device = device_of_rank()
    precision = "bf16" if device.type == "cuda" else "fp32"
    process_group.join(describe(StageConfig(out="preflight"), "preflight"), wait, OPERATION, device)
    host = rendezvous.host_of(int(os.environ["RANK"])) or socket.gethostname()
    mine = host, device_peak.measure_peak(device, TYPES[precision])
    found = [(host, speed) for host, speed in process_group.gather(mine)]
    # On CPUs that share a machine with others, the speed of products says nothing of a node.
    lines = [products(found, precision, share if device.type == "cuda" else 0.0)]
    if len(found) > 1:
        moved, right = all_reduce(device, seconds)
        wrong = "" if right else "; its sum is wrong: a GPU or a link damages data"
        text = f"{moved / 1e9:.2f} GB/s sent and received by each rank, over {dist.get_backend()}{wrong}"
        lines.append(Line("all-reduce", text, () if right else hosts(found)))
    return lines


def products(found: list[tuple[str, float]], precision: str, share: float) -> Line:
    """Return the line of the ranks' TFLOP/s; bad are nodes below `share` of the others' speed."""
    usual = median_high(speed for _, speed in found)
    slowest = min(range(len(found)), key=lambda rank: found[rank][1])
    host, least = found[slowest]
    ranks, nodes = pluralize(len(found), "rank"), pluralize(len(hosts(found)), "node")
    text = f"{usual:.3g} TFLOP/s of {precision} products, {least:.3g} at least (rank {slowest}, {host})"
    return Line("compute", f"{ranks} on {nodes}: {text}", hosts(one for one in found if one[1] < share * usual))


def hosts(found: Iterable[tuple[str, float]]) -> tuple[str, ...]:
    """Return the distinct hosts, in rank order."""
    return tuple(dict.fromkeys(host for host, _ in found))


def all_reduce(device: torch.device, seconds: float) -> tuple[float, bool]:
    """Return the bandwidth of an all-reduce, as NCCL's own tests count it, and if its sum is right.

    The bytes per second are those that each rank sends and receives: 2 (n-1)/n of the message.
    """
    size = dist.get_world_size()
    count = 2**26 if device.type == "cuda" else 2**22
    numbers = torch.full((count,), float(dist.get_rank() + 1), device=device)
    dist.all_reduce(numbers)  # it connects the ranks
    right = bool((numbers == size * (size + 1) / 2).all())
    numbers.zero_()
    once = time_all_reduces(numbers, 1)
    repeats = min(process_group.gather(max(1, min(50, int(seconds / once)))))
    spent = time_all_reduces(numbers, repeats)
    return 2 * (size - 1) / size * numbers.nbytes * repeats / spent, not process_group.any_rank(not right)


def time_all_reduces(numbers: torch.Tensor, repeats: int) -> float:
    """Return the seconds of some all-reduces that all ranks begin together."""
    process_group.any_rank(False)
    began = time.perf_counter()
    for _ in range(repeats):
        dist.all_reduce(numbers)
    device_peak.synchronize(numbers.device)
    return time.perf_counter() - began


def preflight(wait: float, seconds: float, share: float) -> None:
    """Run the check and print its lines on rank 0.

    Raises:
        NodesBad: on every rank, if one of the nodes is.
        ConfigError, Restart: as `check`.
    """
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    try:
        lines = check(wait, seconds, share)
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
        raise NodesBad(f"bad nodes: {said}; repair or replace them before training")
    dist.destroy_process_group()


def main() -> NoReturn:
    """Run the command."""
    parser = Arguments(
        prog="python -m model.preflight", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wait", type=float, default=120.0, help="seconds for all ranks to come")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the all-reduce, about")
    parser.add_argument("--share", type=float, default=0.3, help="of the others' speed, below which a node is bad")
    parser.add_argument("--local_rank", "--local-rank", help=argparse.SUPPRESS)  # of launchers
    options = parser.parse_args()
    rank_record.begin_rank()
    code = Exit.DONE
    try:
        preflight(options.wait, options.seconds, options.share)
    except (UserError, Restart) as error:
        if os.environ.get("LOCAL_RANK", "0") == "0" or not isinstance(error, NodesBad):
            terminal.tell(error)
        code = error.code
    except BaseException:
        rank_record.end_rank(Exit.BUG)
        raise
    rank_record.end_rank(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # exit handlers could wait for lost ranks


if __name__ == "__main__":
    main()
