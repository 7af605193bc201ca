"""Addresses: where a judge may be asked. It gets answers to read, and a key: neither goes where nobody meant it to.

An address comes from settings. What is written there as a number is meant; a name is only as good as whoever answers
for it, so what it leads to is checked when the connection is made, and the connection goes to what was checked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

from agenteval_otel.errors import JudgeError

__all__ = ["check_url", "guard_of"]

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_LOCAL: Final = frozenset({"localhost"})


def check_url(url: str, *, allow_private: bool) -> None:
    """Hold the address of a judge to what one looks like.

    Raises:
        ValueError: Not ``http`` or ``https``, no host, a user part, a query or a fragment in it, a port that is none,
            or a number that no judge answers at (link-local, multicast, unspecified) without `allow_private`.
    """
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise ValueError("expected an address such as https://host/v1") from None
    if parts.scheme not in ("http", "https") or not host or port == 0 or not url.isprintable() or " " in url:
        raise ValueError("expected an address such as https://host/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("expected an address without user, query and fragment; a key belongs to 'api_key'")
    address = _address_of(host)
    if address is not None and not allow_private and not _may_be_written(address):
        raise ValueError(f"{host} is an address that no judge answers at; 'allow_private: true' allows it")


def guard_of(url: str, *, allow_private: bool) -> Callable[[str, dict[str, Any]], Awaitable[None]] | None:
    """What looks at each new connection, as the HTTP client's trace function; None where the address says enough.

    It has the connection made to an address that it has checked. A name's addresses have to be public.
    """
    host = (urlsplit(url).hostname or "").lower()
    if allow_private or host in _LOCAL or _address_of(host) is not None:
        return None

    async def guard(event: str, info: dict[str, Any]) -> None:
        # Another host is a proxy of the environment's, which resolves the name itself.
        if event.endswith("connect_tcp.started") and str(info.get("host", "")).lower() == host:
            info["host"] = await _public_address(host, int(info.get("port") or 0))

    return guard


async def _public_address(host: str, port: int) -> str:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [address for *_, (first, *_) in found if (address := _address_of(str(first))) is not None]
    if not addresses or not all(address.is_global and not address.is_multicast for address in addresses):
        raise JudgeError(
            f"the judge's host {host} leads to an address that is not public; 'allow_private: true' allows it",
            error_type="connection_error",
        )
    return str(addresses[0])


def _may_be_written(address: _Address) -> bool:
    return not (address.is_link_local or address.is_multicast or address.is_unspecified)


def _address_of(host: str) -> _Address | None:
    """The address that the host is a number of, an IPv4 one in its own form."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
