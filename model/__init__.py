"""Learns: batches from shards, the encoder, its training, its heads for downstream tasks.

What PyTorch and the libraries below it look for in the environment as they load stands here.
"""

import os

# Threads that wait for one another spin, by default for milliseconds, and keep other processes off
# the cores: two ranks of two threads each on two cores learnt at a twentieth of their speed. This
# is what GNU OpenMP takes where its own threads outnumber the cores.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# A large tensor is a mapping of its own: made, faulted in page by page and unmapped again in every
# step, a tenth of a small model's time. Huge pages need 500 times fewer faults. (Keeping freed
# memory in the heap is as fast, but tensors of ever new sizes leave holes there: `tiny` grew to
# five times the memory.)
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

# Micro-batches differ in tokens, and so do their tensors: a GPU's memory would be cut into pieces
# of sizes that do not come again.
os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
