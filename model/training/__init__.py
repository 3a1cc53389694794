"""Pre-training: trainer, DeepSpeed engine, optimizers, checkpoints, metrics."""
