"""The optimizers, and how ZeRO lays out what they update."""
