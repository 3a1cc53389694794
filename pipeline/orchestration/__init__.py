"""The graph of stages and its executors: local processes, Kubernetes Jobs, Slurm jobs."""
