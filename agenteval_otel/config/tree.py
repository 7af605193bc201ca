"""The tree of a settings file before it becomes Settings: plain values that know where they were said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["MAX_DEPTH", "MAX_VALUES", "Items", "Section", "Told", "origin_of", "plain"]

MAX_DEPTH = 32
MAX_VALUES = 10_000


class Section(dict[str, Any]):
    """A mapping, and for each key where it was said: ``settings.yaml:12``, or the variable that said it."""

    def __init__(self) -> None:
        super().__init__()
        self.origins: dict[str, str] = {}

    def put(self, key: str, value: Any, origin: str) -> None:
        """Set a key."""
        self[key] = value
        self.origins[key] = origin

    def take(self, key: str) -> Any:
        """Remove a key and give its value; None when it is not there."""
        self.origins.pop(key, None)
        return self.pop(key, None)


class Items(list[Any]):
    """A list, and for each item where it was said."""

    def __init__(self, values: Iterable[Any] = (), origins: Iterable[str] = ()) -> None:
        super().__init__(values)
        self.origins = list(origins)


class Told(str):
    """Text that came from the environment: it shows itself as `shown`, so that no message can tell a secret."""

    shown: str

    def __new__(cls, value: str, shown: str) -> Told:
        """The value, and what stands for it."""
        made = super().__new__(cls, value)
        made.shown = shown
        return made

    def __repr__(self) -> str:
        return repr(self.shown)


def plain(value: Any) -> Any:
    """The value in ordinary mappings and lists."""
    if isinstance(value, Section):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Items):
        return [plain(item) for item in value]
    return value


_INDEX = re.compile(r"\[(\d+)\]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def origin_of(tree: Any, path: str | None) -> str | None:
    """Where the value at a path was said; where that is not known, the innermost thing around it that is."""
    origin, here, rest = None, tree, path or ""
    while rest:
        index = _INDEX.match(rest)
        if index is not None and isinstance(here, Items) and int(index[1]) < len(here):
            origin, here, rest = here.origins[int(index[1])], here[int(index[1])], rest[index.end() :]
        elif isinstance(here, Section) and (key := _key_at(here, rest)) is not None:
            origin, here, rest = here.origins[key], here[key], rest[len(_as_told(key, rest)) :]
        else:
            break
        rest = rest.removeprefix(".")
    return origin


def _key_at(section: Mapping[str, Any], rest: str) -> str | None:
    """The longest key that the path goes on with: keys may hold dots."""
    fitting = [key for key in section if key and _continues(_as_told(key, rest), rest)]
    return max(fitting, key=len, default=None)


def _as_told(key: str, rest: str) -> str:
    # Paths name fields as they are documented, files may have their camelCase.
    return key if _continues(key, rest) else _CAMEL.sub("_", key).lower()


def _continues(key: str, rest: str) -> bool:
    return rest.startswith(key) and rest[len(key) : len(key) + 1] in ("", ".", "[")
