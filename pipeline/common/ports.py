"""TCP ports of this machine."""

import contextlib
import random
import socket

UNASSIGNED = range(10_000, 29_000)  # below launchers' defaults, node ports and what systems give away


def free_port() -> int:
    """Return a TCP port that is free now, on every interface, and that no connection gets by itself.

    Whoever asks for one binds it seconds later; of those that the system gives to connections
    (and for port 0) another program would have it by then, once in some thousand times.
    """
    while True:
        port = random.SystemRandom().choice(UNASSIGNED)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
