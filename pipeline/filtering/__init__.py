"""Which documents are dropped before training, and why."""
