"""Shared foundations: errors, storage, downloads, keyed randomness, formatting."""
