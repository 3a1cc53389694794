"""Learns: batches from shards, the encoder, its training, its heads for downstream tasks."""

import os

# Threads that wait for one another spin, by default for milliseconds, and keep other processes off
# the cores: two ranks of two threads each on two cores learnt at a twentieth of their speed. This
# is what GNU OpenMP takes where its own threads outnumber the cores. It looks as PyTorch loads.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
