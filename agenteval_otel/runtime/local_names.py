"""Names of a server on this machine: requests of other sites' pages in a browser carry another name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")


class LocalNames:
    """The hosts by which clients may address a server that asks for no token.

    A page of any site can let its own name lead to 127.0.0.1 (DNS rebinding), and its requests then
    carry that name as `Host`. An address cannot be made to lead elsewhere, so each address is right.

    Args:
        names: Names that are right, besides ``localhost``.
        port: The only right port. None allows any, because a forwarded port may be any.
    """

    def __init__(self, names: Iterable[str] = (), *, port: int | None = None) -> None:
        self._names = {"localhost", *map(_plain, names)}
        self._port = port

    def __repr__(self) -> str:
        return f"<LocalNames {', '.join(sorted(self._names))}>"

    def has_host(self, host: str) -> bool:
        """Tell whether a `Host` header names this server."""
        match = _HOST.fullmatch(host.strip())
        if match is None:
            return False
        name, port = match.groups()
        if self._port is not None and port != str(self._port):
            return False
        return _plain(name) in self._names or _is_address(name)

    def has_origin(self, origin: str) -> bool:
        """Tell whether an `Origin` header names a page of this server."""
        scheme, separator, host = origin.partition("://")
        return scheme == "http" and bool(separator) and self.has_host(host)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
