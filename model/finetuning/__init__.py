"""Downstream training: heads, features, the fine-tuning loop, embeddings."""
