"""Where a process of a job is: which node or part of how many, and where its ranks meet.

Each environment has its function: a step of Slurm, a TrainJob of Kubeflow Trainer, which sets what
torchrun reads, and an Indexed Job of Kubernetes or what another scheduler sets like one.
"""

import os
import subprocess
from dataclasses import dataclass

from pipeline.common.errors import ConfigError

PORT = 29500  # of the rendezvous
INDEX = "JOB_COMPLETION_INDEX"  # environment: set by Kubernetes
TASK = "SLURM_PROCID"  # environment: set in a step of Slurm
MASTER = "PET_MASTER_ADDR"  # environment: the host of rank 0, for torchrun


@dataclass(frozen=True)
class Node:
    """One of the nodes of a training."""

    index: int
    gpus: int  # of each; 0: one process on the CPU
    hosts: tuple[str, ...]  # in rank order
    port: int

    @property
    def options(self) -> list[str]:
        """Return the options of deepspeed's launcher on this node."""
        meet = ["--master_addr", self.hosts[0], "--master_port", str(self.port)]
        return ["--no_ssh", "--node_rank", str(self.index), *meet]

    @property
    def hostfile(self) -> str:
        """Return the text of the hostfile."""
        return "".join(f"{name} slots={self.gpus or 1}\n" for name in self.hosts)


def node_of(job: str) -> Node:
    """Return this node among those of a training; the pods of a Job are named after it.

    Raises:
        ConfigError: an environment variable is missing, or contradicts another one.
    """
    if TASK in os.environ:
        return of_slurm()
    if MASTER in os.environ and not {"BERT_HOSTS", "BERT_SERVICE"} & os.environ.keys():
        return of_torchrun()
    return of_indexed_job(job)


def of_slurm() -> Node:
    """Return the node of a step of Slurm."""
    words = ["scontrol", "show", "hostnames", os.environ["SLURM_STEP_NODELIST"]]
    names = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    # Jobs on the same node need different ports, or they would join each other's store.
    port = number("BERT_PORT", 1, 20000 + number("SLURM_JOB_ID", 0) % 10000)
    return Node(number(TASK, 0), number("SLURM_GPUS_ON_NODE", 0, 0), tuple(names), port)


def of_torchrun() -> Node:
    """Return the node of a TrainJob, which names the first pod; BERT_GPUS goes before what it says."""
    index, nodes = number(INDEX, 0), number("PET_NNODES", 1)
    first, dot, domain = os.environ[MASTER].partition(".")
    others = (f"{first.removesuffix('-0')}-{each}{dot}{domain}" for each in range(1, nodes))
    gpus = number("BERT_GPUS" if "BERT_GPUS" in os.environ else "PET_NPROC_PER_NODE", 0)
    return Node(index, gpus, (os.environ[MASTER], *others), number("PET_MASTER_PORT", 1, PORT))


def of_indexed_job(job: str) -> Node:
    """Return the node of a pod behind the headless Service BERT_SERVICE, or one of BERT_HOSTS."""
    index, nodes, gpus = number(INDEX, 0), number("BERT_NODES", 1), number("BERT_GPUS", 0)
    if index >= nodes:
        raise ConfigError(f"pod {index} exceeds it; set the Job's completions to BERT_NODES", "BERT_NODES", nodes)
    listed, service = os.environ.get("BERT_HOSTS"), os.environ.get("BERT_SERVICE")
    if not listed and not service:
        cure = "set it to the name of the pods' headless Service"
        raise ConfigError(f"the environment variable is not set; {cure}", "BERT_SERVICE")
    names = listed.split(",") if listed else [f"{job}-{each}.{service}" for each in range(nodes)]
    if len(names) != nodes:
        raise ConfigError(f"the environment variable does not match BERT_HOSTS={listed}", "BERT_NODES", nodes)
    return Node(index, gpus, tuple(names), number("BERT_PORT", 1, PORT))


def part() -> tuple[int, int]:
    """Return which of how many jobs that share an evaluation this is.

    Raises:
        ConfigError: an environment variable is missing.
    """
    if TASK not in os.environ:
        return number(INDEX, 0), number("BERT_PARTS", 1)
    nodes = number("SLURM_STEP_NUM_NODES", 1)
    return number("SLURM_ARRAY_TASK_ID", 0, number(TASK, 0)), number("SLURM_ARRAY_TASK_COUNT", 1, nodes)


def number(name: str, least: int, default: int | None = None) -> int:
    """Return an environment variable as a whole number of at least `least`.

    Raises:
        ConfigError: it is none, or is not set and has no default.
    """
    text = os.environ.get(name, "" if default is None else str(default))
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"the environment variable must be a whole number of at least {least}", name, repr(text))
    return int(text)
