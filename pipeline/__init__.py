"""The data pipeline: corpus, vocabulary, shards, (model), Hugging Face, GLUE, report."""

__version__ = "0.1.0"
