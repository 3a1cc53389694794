"""What a stage is: the registry, fingerprints, and how a folder is made once and whole."""
