"""Our own regular expressions, compiled when they are first used: import must not pay for what may never be needed."""

from __future__ import annotations

import re
from typing import Any, overload

__all__ = ["lazily"]


@overload
def lazily(source: str, flags: int = 0) -> re.Pattern[str]: ...
@overload
def lazily(source: bytes, flags: int = 0) -> re.Pattern[bytes]: ...
def lazily(source: Any, flags: int = 0) -> Any:
    """A pattern that is compiled with its first search; afterwards it costs what a compiled one costs."""
    return _Pattern(source, flags)


class _Pattern:
    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source, self._flags = source, flags

    def __repr__(self) -> str:
        return f"lazily({self._source!r})"

    def __getattr__(self, name: str) -> Any:
        # Asked for once a name: then it is an attribute like any other. Two threads that meet compile the same.
        found = getattr(re.compile(self._source, self._flags), name)
        self.__dict__[name] = found
        return found
