"""Training: batches from shards, the encoder, its pre-training, and fine-tuning heads.

Sets environment variables that PyTorch and its libraries read on import.
"""

import os

import pipeline  # noqa: F401  # its one line for a library that is not installed
from model.distributed.environment import GPUS

DEFAULTS = {
    # Waiting threads spin, by default for milliseconds, and keep other processes off the cores: two
    # ranks of two threads each on two cores trained at a twentieth of their speed. This is the value
    # that GNU OpenMP uses when its own threads outnumber the cores.
    "GOMP_SPINCOUNT": "1000",
    # A large tensor is its own mapping: mapped, faulted in page by page and unmapped in every step,
    # which takes a tenth of a small model's time. Huge pages need 500 times fewer faults. (Keeping
    # freed memory in the heap is as fast, but tensors of varying sizes fragment it: `tiny` grew to
    # five times the memory.)
    "THP_MEM_ALLOC_ENABLE": "1",
    # Micro-batches differ in tokens, and so do their tensors: without this, GPU memory is fragmented.
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    "DEEPSPEED_LOG_LEVEL": "warning",
}
os.environ.update(DEFAULTS | os.environ)

if os.environ.get(GPUS):
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ[GPUS]
