"""Stages and their graph: manifests, fingerprints, local and Kubernetes executors."""
