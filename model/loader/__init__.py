"""Shards -> batches: sample order, masking, prefetching."""
