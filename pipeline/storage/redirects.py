"""Where a server may send a request on to: its own host, and whatever is public.

Otherwise who answers a request would choose what this machine reads: the credentials that its cloud
gives it, or a service of its own network.
"""

import ipaddress
import socket
from urllib.parse import urlsplit

from pipeline.errors import InputError

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def check(typed: str, before: str, after: str) -> None:
    """Refuse a redirect that leads from the address `before` to `after`; the user named `typed`.

    Raises:
        InputError: it leads from https to http, or to another host of a private network.
    """
    if urlsplit(before).scheme == "https" != urlsplit(after).scheme:
        why = "from https to http"
    elif private := closed(_addresses(typed), _addresses(after)):
        why = f"to a private address, {min(private)}"
    else:
        return
    raise InputError(
        f"the server redirects {why} ({after}), which is refused; set the address that you mean", path=typed
    )


def closed(typed: set[str], addresses: set[str]) -> set[str]:
    """Return which of a host's addresses are neither public nor those of the host that is typed."""
    return {one for one in addresses - typed if not _is_public(one)}


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global
    # An address of IPv6 may stand for one of IPv4.
    inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
    inner = inner or address.ipv4_mapped or address.sixtofour
    return address.is_global and not address.is_site_local and (not inner or inner.is_global)


def _addresses(url: str) -> set[str]:
    """Return a host's addresses; none where only a proxy knows them."""
    try:
        infos = socket.getaddrinfo(urlsplit(url).hostname, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    # Both are this machine, as `localhost` is.
    return {"127.0.0.1" if one[4][0] == "::1" else str(one[4][0]) for one in infos}
