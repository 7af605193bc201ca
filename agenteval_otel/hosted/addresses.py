"""Addresses: where a model may be asked. It gets answers to read, and a key: neither goes where nobody meant it to.

An address comes from settings. What is written there as a number is meant; a name is only as good as whoever answers
for it, so what it leads to is checked when the connection is made, and the connection goes to what was checked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

from agenteval_otel.errors import ModelError

__all__ = ["check_url", "guard_of"]

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_LOCAL: Final = frozenset({"localhost"})
# Others are written in another way by the HTTP client, so that what it connects to could not be told from a proxy.
_NAME: Final = re.compile(r"[a-z0-9._-]{1,253}")
# Octal, hexadecimal, or less than four parts: a name in the eyes of some, an address in those of others.
_OLD_NUMBER: Final = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$")
# IPv4 addresses in their last 32 bits: NAT64 with its local prefix, IPv4-compatible, IPv4-translated.
_TRANSLATED: Final = tuple(
    map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96"))
)  # fmt: skip
# Where clouds answer with a machine's credentials, beside the link-local ones.
_OF_CLOUDS: Final = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192")))


def check_url(url: str, *, allow_private: bool) -> None:
    """Hold the address of a model to what one looks like.

    Raises:
        ValueError: Not ``http`` or ``https``, no host, one that is not ASCII, a user part, a query or a fragment in it,
            a port that is none, or a number that no model answers at (link-local, multicast, unspecified, where clouds
            keep credentials; in whatever notation) without `allow_private`.
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
    if _NAME.fullmatch(host) is None and not _is_ipv6(host):
        raise ValueError("expected a host of ASCII letters, digits, dots and hyphens; a name beyond ASCII as xn--...")
    address = _address_of(host)
    if address is None and _OLD_NUMBER.search(host):
        raise ValueError("expected an address of four decimal numbers; resolvers read others in ways of their own")
    if address is not None and not allow_private and not _may_be_written(address):
        raise ValueError(f"{host} is an address that no model answers at; 'allow_private: true' allows it")


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
    hosts = [str(first) for *_, (first, *_) in found]
    if not hosts or not all((address := _address_of(host)) is not None and _is_public(address) for host in hosts):
        raise ModelError(
            f"the host {host} leads to an address that is not public; 'allow_private: true' allows it",
            error_type="connection_error",
        )
    return hosts[0]


def _is_public(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and (address.is_site_local or address.is_reserved):
        return False
    return address.is_global and not address.is_multicast


def _may_be_written(address: _Address) -> bool:
    return not (address.is_link_local or address.is_multicast or address.is_unspecified or address in _OF_CLOUDS)


def _is_ipv6(host: str) -> bool:
    return isinstance(_as_written(host), ipaddress.IPv6Address)


def _address_of(host: str) -> _Address | None:
    """The address that the host is a number of; the IPv4 address where an IPv6 one is a way to it."""
    address = _as_written(host)
    if not isinstance(address, ipaddress.IPv6Address):
        return address
    found = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if found is None and any(address in network for network in _TRANSLATED):
        found = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    # What is left of these networks besides, such as ::1, is no way to another one.
    return address if found is None or int(address) < 0x1_0000 else found


def _as_written(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
