"""Scores of models on tasks: of models that are fine-tuned for a task, and of models as they are."""
