"""The graph of stages, and what runs it: local processes, Kubernetes Jobs, one stage in a pod."""
