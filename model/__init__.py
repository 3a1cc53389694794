"""Learns: batches from shards, the encoder, its training, its heads for downstream tasks."""
