"""Moves data: corpus -> vocabulary -> shards -> (model) -> Hugging Face folder -> GLUE -> report."""
