"""The ground floor: errors, storage, downloads, keyed randomness, formatting."""
