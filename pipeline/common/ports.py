"""TCP ports of this machine."""

import contextlib
import random
import socket

UNASSIGNED = range(10_000, 29_000)  # below launchers' defaults, node ports and what systems give away


def free_port() -> int:
    """Return a TCP port that is free now, on every interface, and that the system gives to no other program."""
    while True:
        port = random.SystemRandom().choice(UNASSIGNED)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
