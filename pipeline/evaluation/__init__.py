"""Downstream tasks: files, examples, metrics, grid search, submissions."""
