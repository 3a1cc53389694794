"""Where the ranks of a training find one another, and make sure that they are of one training.

Rank 0 serves a store at MASTER_ADDR:MASTER_PORT and leaves its card there. Each other rank compares
its own with it and leaves what differs. When all have come, rank 0 says what is to be done: start,
or end with the same error on every rank. Nobody enters the process group of another training.
"""

import contextlib
import json
import os
import socket
import time
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from model.resilience.rank_card import HOSTS, RankCard
from pipeline.common.errors import ConfigError, InputError, Restart, first_line

LEAVING = 10.0  # seconds that the training before this one may take to free the port
_CARD, _GO = "card", "go"


def meet(card: RankCard, start_timeout: float) -> tuple[Store, int, int]:
    """Wait until all ranks are there and are of one training; the store, the rank, how many.

    Raises:
        ConfigError: the port is another program's or another training's.
        InputError: a rank has other code, versions, settings or data than rank 0.
        Restart: not all ranks came in time.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    until = time.monotonic() + start_timeout
    if size == 1:
        # Nobody else comes, so no port has to be agreed on.
        return _prefixed(TCPStore("127.0.0.1", 0, is_master=True), card), rank, size
    if rank == 0:
        store = _served(until)
        store.set(_key(_CARD), card.to_json())
        _welcome(store, size, start_timeout, until)
    else:
        store = _found(card, start_timeout, until)
        _arrive(store, card, rank, size, start_timeout, until)
    return _prefixed(store, card), rank, size


def _prefixed(store: Store, card: RankCard) -> Store:
    return PrefixStore(f"run/{card.run}/{card.fingerprint[:12]}", store)


def _place() -> tuple[str, int]:
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def _key(name: str) -> str:
    """Return a key of the store; torchrun keeps its store when it starts its ranks again."""
    return f"{name}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _left(until: float) -> timedelta:
    return timedelta(seconds=max(1.0, until - time.monotonic()))


def _client(until: float) -> Store:
    address, port = _place()
    return TCPStore(address, port, is_master=False, timeout=_left(until), wait_for_workers=False)


def _served(until: float) -> Store:
    """Return the store that rank 0 serves, or the one that torchrun serves for it."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return _client(until)
    address, port = _place()
    patience = min(until, time.monotonic() + LEAVING)
    while True:
        try:
            return TCPStore(
                address, port, is_master=True, timeout=_left(until), wait_for_workers=False,
                multi_tenant=True,
            )  # fmt: skip
        except dist.DistError as error:
            taken = "EADDRINUSE" in str(error) or "already in use" in str(error)
            if taken and time.monotonic() < patience:
                time.sleep(0.5)
                continue
            if taken:
                raise ConfigError(
                    f"master_port={port}: taken on {socket.gethostname()} by another program, "
                    "another training maybe; choose another: --master_port N",
                    key="master_port",
                ) from error
            raise Restart(f"rank 0 cannot serve {address}:{port}: {first_line(error)}") from error


def _welcome(store: Store, size: int, start_timeout: float, until: float) -> None:
    """Wait for all others as rank 0, and tell them whether to start."""
    others = [_key(f"came/{rank}") for rank in range(1, size)]
    try:
        store.wait(others, _left(until))
    except dist.DistError as error:
        missing = _missing(store, size, start_timeout)
        _refuse(store, [key for key in others if store.check([key])], "missing", missing)
        raise Restart(missing) from error
    told = [bytes(store.get(key)).decode() for key in others]
    unlike = sorted({text for text in told if text})
    if unlike:
        _refuse(store, others, "unlike", unlike[0])
        raise InputError(unlike[0])
    store.set(_key(_GO), json.dumps(["start", ""]))


def _refuse(store: Store, arrived: list[str], what: str, why: str) -> None:
    """Tell the ranks that came why the training does not start, and let them read it.

    The store ends with rank 0, so rank 0 must not leave before the others have their answer.
    """
    store.set(_key(_GO), json.dumps([what, why]))
    with contextlib.suppress(dist.DistError):  # a rank that died in between reads nothing
        store.wait([_read(key) for key in arrived], timedelta(seconds=LEAVING))


def _read(came: str) -> str:
    """Return the key by which a rank says that it has read rank 0's answer."""
    return f"{came}/read"


def _found(card: RankCard, start_timeout: float, until: float) -> Store:
    """Return the store of this training's rank 0."""
    address, port = _place()
    patience = min(until, time.monotonic() + LEAVING)
    while True:
        try:
            store = _client(until)
            store.wait([_key(_CARD)], _left(until))
            first = RankCard.from_json(store.get(_key(_CARD)))
            started = store.check([_key(_GO)])
        except (dist.DistError, ValueError, TypeError, KeyError) as error:
            if time.monotonic() < until:  # it ended, and may be started again
                time.sleep(0.5)
                continue
            raise Restart(
                f"{name_of(0)} did not come to {address}:{port} within {start_timeout:g} s "
                f"({first_line(error)})"
            ) from error
        if first.same_run(card) and not started:
            return store
        if not first.same_run(card) and time.monotonic() > patience:
            raise ConfigError(
                f"master_port={port}: another training meets at {address}:{port} (out={first.out},"
                f" on {first.host}; here out={card.out}); choose another port: --master_port N",
                key="master_port",
            )
        if time.monotonic() > until:
            raise Restart(f"the training before this one does not leave {address}:{port}")
        del store
        time.sleep(0.5)


def _arrive(
    store: Store, card: RankCard, rank: int, size: int, start_timeout: float, until: float
) -> None:
    """Leave what differs from rank 0, and do what rank 0 says."""
    try:
        first = RankCard.from_json(store.get(_key(_CARD)))
        unlike = first.differences(card)
        text = unlike and (
            f"rank 0 on {first.host} and rank {rank} on {card.host} differ in {unlike}; install "
            "and start the same on every node"
        )
        store.set(_key(f"came/{rank}"), text)
        try:
            store.wait([_key(_GO)], _left(until))
        except dist.DistStoreError as error:
            raise Restart(_missing(store, size, start_timeout)) from error
        what, why = json.loads(bytes(store.get(_key(_GO))))
        if what != "start":
            store.set(_read(_key(f"came/{rank}")), "")
    except dist.DistNetworkError as error:
        raise Restart(f"{name_of(0)} went away before all ranks came") from error
    if what == "missing":
        raise Restart(why)
    if what == "unlike":
        raise InputError(why)


def _missing(store: Store, size: int, start_timeout: float) -> str:
    ranks = [rank for rank in range(1, size) if not store.check([_key(f"came/{rank}")])]
    names = ", ".join(dict.fromkeys(map(name_of, ranks))) or name_of(0)
    return f"{names} did not come within {start_timeout:g} s"


def name_of(rank: int) -> str:
    """Return how a rank is called: with its node, where the launcher said which there are."""
    hosts = [name for name in os.environ.get(HOSTS, "").split(",") if name]
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if not hosts or size % len(hosts):
        return f"rank {rank}"
    return f"rank {rank} ({hosts[rank // (size // len(hosts))]})"
