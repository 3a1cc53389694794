"""Stages: the registry, fingerprints, and atomic creation of output folders."""
