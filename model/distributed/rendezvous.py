"""Rendezvous of the ranks, with a check that all belong to the same training.

Rank 0 serves a store at MASTER_ADDR:MASTER_PORT with its card. Each other rank compares its own
card and stores the differences. When all have arrived, rank 0 either starts the training or ends it
with the same error on every rank. No rank joins the process group of another training.

Each message has a code of itself and the secret that the launcher gave the ranks: who does not know
the secret neither arrives nor starts another rank.
"""

import contextlib
import errno
import hmac
import ipaddress
import json
import os
import socket
import sys
import time
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from model.distributed.environment import HOSTS, SECRET
from model.distributed.rank_card import RankCard
from pipeline.errors import ConfigError, InputError, Restart, first_line

LEAVING = 10.0  # seconds that a previous training may take to free the port
CONNECTING = 10.0  # seconds for one connection: an address may be routed later
POLL = 0.1  # seconds between rank 0's looks at who has joined
RETRY = 0.5  # seconds between attempts
_CARD, _GO = "card", "go"
_BACKLOG = 2048  # connections that wait to be accepted


def meet(card: RankCard, start_timeout: float) -> tuple[Store, int, int]:
    """Wait for all ranks of the training; return the store, this rank and the world size.

    Raises:
        ConfigError: The port is used by another program or training.
        InputError: A rank differs from rank 0 in code, versions, settings or data.
        Restart: Some ranks did not join in time.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    until = time.monotonic() + start_timeout
    if size == 1:
        # A single rank needs no agreed port.
        handle = socket.create_server(("127.0.0.1", 0)).detach()
        store: Store = TCPStore("127.0.0.1", 0, is_master=True, master_listen_fd=handle)
    elif rank == 0:
        store = _served(until)
        tell(store, _CARD, card.to_json())
        _welcome(store, size, start_timeout, until)
    else:
        store = _find_store(card, start_timeout, until)
        _arrive(store, card, rank, size, start_timeout, until)
    return prefixed(store, card), rank, size


def prefixed(store: Store, card: RankCard) -> Store:
    """Return the part of a store in which the ranks of one start leave their addresses."""
    name = f"run/{card.run}/{card.fingerprint[:12]}"
    return PrefixStore(_key(f"{name}/{_code(name, b'').decode()}"), store)


def _address() -> tuple[str, int]:
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def _key(name: str) -> str:
    """Return a store key, unique per restart: torchrun keeps its store when it restarts ranks."""
    return f"{name}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _code(name: str, text: bytes) -> bytes:
    """Return what only those who know the secret can write before a text of this name."""
    secret = os.environ.get(SECRET, "").encode()
    return hmac.new(secret, _key(name).encode() + b"\n" + text, "sha256").hexdigest().encode()


def tell(store: Store, name: str, text: str) -> None:
    """Leave a message for the other ranks."""
    store.set(_key(name), _code(name, text.encode()).decode() + text)


def _read(store: Store, name: str) -> tuple[bytes, bool]:
    """Return a message, and whether it is of a rank that knows the secret."""
    data = bytes(store.get(_key(name)))
    code, text = data[:64], data[64:]
    return text, hmac.compare_digest(code, _code(name, text))


def answer(store: Store, name: str) -> str:
    """Return another rank's message.

    Raises:
        ConfigError: it is of a process that does not know the secret.
    """
    text, authentic = _read(store, name)
    if not authentic:
        raise ConfigError(
            f"somebody who does not know the secret of this training ({SECRET}) has answered; start all ranks alike, "
            "on a port of their own",
            "master_port",
            _address()[1],
        )
    return text.decode()


def listening(address: str, port: int) -> socket.socket | None:
    """Return a socket that listens on one address alone; None if that is not all ranks' way here.

    A machine's own name may be loopback on it, and one of several addresses or of a gateway.

    Raises:
        OSError: the port is in use.
    """
    try:
        infos = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(place[0]) for *_, place in infos))
        local = [ipaddress.ip_address(place.partition("%")[0]).is_loopback for place in addresses]
        loopback = all(local) and address in ("localhost", addresses[0])
        if not loopback and (any(local) or len(addresses) > 1):
            return None
        family = socket.AF_INET6 if ":" in addresses[0] else socket.AF_INET
        return socket.create_server((addresses[0], port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise
        return None


def _left(until: float) -> timedelta:
    return timedelta(seconds=max(1.0, until - time.monotonic()))


def _client(until: float) -> Store:
    """Wait until rank 0's port accepts connections; return its store.

    PyTorch's client would wait too, but prints a trace of its C++ code when it gives up.

    Raises:
        OSError: the port did not accept a connection in time.
    """
    while True:
        timeout = min(CONNECTING, max(1.0, until - time.monotonic()))
        try:
            with socket.create_connection(_address(), timeout=timeout) as connection:
                address = str(connection.getpeername()[0])
                break
        except OSError:
            if time.monotonic() + RETRY > until:
                raise
        time.sleep(RETRY)
    return TCPStore(address, _address()[1], is_master=False, timeout=_left(until), wait_for_workers=False)


def _served(until: float) -> Store:
    """Return the store that rank 0 serves, or the one that torchrun serves for it."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return _client(until)
    address, port = _address()
    leaving = min(until, time.monotonic() + LEAVING)
    while True:
        try:
            listener = listening(address, port)
            return TCPStore(
                listener.getsockname()[0] if listener else address,
                port,
                is_master=True,
                timeout=_left(until),
                wait_for_workers=False,
                multi_tenant=True,
                master_listen_fd=listener.detach() if listener else None,
            )
        except (dist.DistError, OSError) as error:
            in_use = "EADDRINUSE" in str(error) or "already in use" in str(error)
            if in_use and time.monotonic() < leaving:
                time.sleep(RETRY)
                continue
            if in_use:
                raise ConfigError(
                    f"already in use on {socket.gethostname()}, possibly by another training; choose another port: "
                    "--master_port N",
                    "master_port",
                    port,
                ) from error
            raise Restart(f"rank 0 cannot serve {address}:{port}: {first_line(error)}") from error


def _welcome(store: Store, size: int, start_timeout: float, until: float) -> None:
    """Wait as rank 0 for all others, then start them or refuse."""
    others = [f"came/{rank}" for rank in range(1, size)]
    while not _all_came(store, others):
        if time.monotonic() > until:
            missing = _missing(store, size, start_timeout)
            _refuse(store, [name for name in others if _came(store, name)], "missing", missing)
            raise Restart(missing)
        time.sleep(POLL)
    unlike = sorted({text for name in others if (text := answer(store, name))})
    if unlike:
        _refuse(store, others, "unlike", unlike[0])
        raise InputError(unlike[0])
    tell(store, _GO, json.dumps(["start", ""]))


def _came(store: Store, name: str) -> bool:
    # `wait` would print a warning of PyTorch when it gives up
    return store.check([_key(name)])


def _all_came(store: Store, names: list[str]) -> bool:
    """Return whether all ranks have arrived; those who do not know the secret are turned away."""
    if not store.check([_key(name) for name in names]):
        return False
    strangers = [name for name in names if not _read(store, name)[1]]
    for name in strangers:
        print(f"warning: {name}: without the secret of this training", file=sys.stderr, flush=True)
        store.delete_key(_key(name))
    return not strangers


def _refuse(store: Store, arrived: list[str], what: str, why: str) -> None:
    """Send the ranks that have arrived the reason not to start, and wait until they have read it.

    The store ends with rank 0, which therefore must not exit first.
    """
    tell(store, _GO, json.dumps([what, why]))
    with contextlib.suppress(dist.DistError):  # a rank may have died since
        store.wait([_key(f"{name}/read") for name in arrived], timedelta(seconds=LEAVING))


def _find_store(card: RankCard, start_timeout: float, until: float) -> Store:
    """Return the store of this training's rank 0."""
    address, port = _address()
    leaving = min(until, time.monotonic() + LEAVING)
    while True:
        try:
            store = _client(until)
            store.wait([_key(_CARD)], _left(until))
            text, authentic = _read(store, _CARD)
            first = RankCard.from_json(text)
            started = store.check([_key(_GO)])
        except (OSError, dist.DistError, ValueError, TypeError, KeyError) as error:
            if time.monotonic() + RETRY < until:  # rank 0 ended and may be restarted
                time.sleep(RETRY)
                continue
            raise Restart(
                f"{name_of(0)} did not start at {address}:{port} within {start_timeout:g} s ({first_line(error)})"
            ) from error
        same_run = authentic and (first.run, first.out) == (card.run, card.out)
        if same_run and not started:
            return store
        if not same_run and time.monotonic() > leaving:
            other = "" if authentic else f", of which {SECRET} is another,"
            raise ConfigError(
                f"another training{other} uses {address}:{port} (out={first.out} on {first.host}; here "
                f"out={card.out}); choose another port: --master_port N",
                "master_port",
                port,
            )
        if time.monotonic() > until:
            raise Restart(f"the previous training still uses {address}:{port}")
        del store
        time.sleep(RETRY)


def _arrive(store: Store, card: RankCard, rank: int, size: int, start_timeout: float, until: float) -> None:
    """Store the differences from rank 0, and wait for its answer."""
    try:
        first = RankCard.from_json(answer(store, _CARD))
        unlike = first.differences(card)
        text = unlike and (
            f"rank 0 on {first.host} and rank {rank} on {card.host} differ in {unlike}; use the "
            "same installation, settings and data on every node"
        )
        tell(store, f"came/{rank}", text)
        try:
            store.wait([_key(_GO)], _left(until))
        except dist.DistStoreError as error:
            raise Restart(_missing(store, size, start_timeout)) from error
        what, why = json.loads(answer(store, _GO))
        if what != "start":
            store.set(_key(f"came/{rank}/read"), "")
    except dist.DistNetworkError as error:
        raise Restart(f"{name_of(0)} was lost before all ranks had joined") from error
    if what == "missing":
        raise Restart(why)
    if what == "unlike":
        raise InputError(why)


def _missing(store: Store, size: int, start_timeout: float) -> str:
    ranks = [rank for rank in range(1, size) if not _came(store, f"came/{rank}")]
    names = ", ".join(dict.fromkeys(map(name_of, ranks))) or name_of(0)
    return f"{names} did not join within {start_timeout:g} s"


def name_of(rank: int) -> str:
    """Return a rank's name, with its node if the launcher named the nodes."""
    host = host_of(rank)
    return f"rank {rank} ({host})" if host else f"rank {rank}"


def host_of(rank: int) -> str:
    """Return the name of a rank's node; nothing if the launcher named none."""
    hosts = [name for name in os.environ.get(HOSTS, "").split(",") if name]
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if not hosts or size % len(hosts):
        return ""
    return hosts[rank // (size // len(hosts))]
