"""TCP ports of this machine."""

import socket


def free_port() -> int:
    """Return a TCP port that is free now, on every interface."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
