"""The Apache Beam job of `prepare`: its plan, tasks, runners and workers."""

import os

# Before gRPC is loaded: what it prints of ports and lost connections is in our errors, where it matters.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
