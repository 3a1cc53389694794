"""Kernels of our own in Triton, each behind an operator of PyTorch."""
