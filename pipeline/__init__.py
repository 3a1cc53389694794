"""Moves data: corpus -> vocabulary -> shards -> (model) -> Hugging Face -> GLUE -> report."""
