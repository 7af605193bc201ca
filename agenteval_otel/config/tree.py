"""The tree of a settings file before it becomes `Settings`: plain values, each with its origin."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MAX_DEPTH = 32
MAX_VALUES = 10_000
EXCLUSIVE = {"sample_rate": "sampler", "sampler": "sample_rate"}
"""Setting one removes the other from the layer below."""


class Section(dict[str, Any]):
    """A mapping, and the origin of each key: ``settings.yaml:12``, or the variable."""

    def __init__(self) -> None:
        super().__init__()
        self.origins: dict[str, str] = {}

    def put(self, key: str, value: Any, origin: str) -> None:
        """Set a key."""
        self[key] = value
        self.origins[key] = origin

    def take(self, key: str) -> Any:
        """Remove a key and return its value; None if it is missing."""
        self.origins.pop(key, None)
        return self.pop(key, None)


class Items(list[Any]):
    """A list, and the origin of each item."""

    def __init__(self, values: Iterable[Any] = (), origins: Iterable[str] = ()) -> None:
        super().__init__(values)
        self.origins = list(origins)


class EnvironmentText(str):
    """Text from the environment: its `repr` shows `shown`, so no message contains a secret."""

    shown: str

    def __new__(cls, value: str, shown: str) -> EnvironmentText:
        """The value, and what messages show instead."""
        text = super().__new__(cls, value)
        text.shown = shown
        return text

    def __repr__(self) -> str:
        return repr(self.shown)


def plain(value: Any) -> Any:
    """The value in ordinary mappings and lists."""
    if isinstance(value, Section):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Items):
        return [plain(item) for item in value]
    return value


def merge(base: Section, over: Section) -> Section:
    """The base with `over` on top: mappings merge key by key; lists and everything else are replaced.

    A mapping with another ``type`` replaces the whole; a `sample_rate` replaces a `sampler` below it, and vice versa.
    """
    if "type" in over and over["type"] != base.get("type"):
        return over
    removed = {EXCLUSIVE[key] for key in over if key in EXCLUSIVE and EXCLUSIVE[key] not in over}
    merged = Section()
    for key, value in base.items():
        if key not in removed:
            merged.put(key, value, base.origins[key])
    for key, value in over.items():
        below = base.get(key)
        if isinstance(below, Section) and isinstance(value, Section):
            value = merge(below, value)
        merged.put(key, value, over.origins[key])
    return merged


_INDEX = re.compile(r"\[(\d+)\]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def origin_of(tree: Any, path: str | None) -> str | None:
    """The origin of the value at a path, or of the innermost known value around it."""
    origin, here, rest = None, tree, path or ""
    while rest:
        index = _INDEX.match(rest)
        if index is not None and isinstance(here, Items) and int(index[1]) < len(here):
            origin, here, rest = here.origins[int(index[1])], here[int(index[1])], rest[index.end() :]
        elif isinstance(here, Section) and (key := _key_at(here, rest)) is not None:
            origin, here, rest = here.origins[key], here[key], rest[len(_spelling(key, rest)) :]
        else:
            break
        rest = rest.removeprefix(".")
    return origin


def _key_at(section: Section, rest: str) -> str | None:
    """The longest key with which the path continues: keys may contain dots."""
    fitting = [key for key in section if key and _continues(_spelling(key, rest), rest)]
    return max(fitting, key=len, default=None)


def _spelling(key: str, rest: str) -> str:
    # Paths have the documented names, files may have their camelCase.
    return key if _continues(key, rest) else _CAMEL.sub("_", key).lower()


def _continues(key: str, rest: str) -> bool:
    return rest.startswith(key) and rest[len(key) : len(key) + 1] in ("", ".", "[")
