"""Self-attention over packed sequences: one interface, one file per backend."""
