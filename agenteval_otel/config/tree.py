"""The tree of a settings file before it becomes `Settings`: plain values, and the origin of each by its path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

MAX_DEPTH = 32
MAX_VALUES = 10_000
EXCLUSIVE = {"sample_rate": "sampler", "sampler": "sample_rate"}
"""Setting one removes the other from the layer below."""
_CAMEL = re.compile(r"(?<=[a-z0-9])[A-Z]")
_LAST_PART = re.compile(r"(?:^|\.|\[)[^.\[]*\Z")


class Tree(NamedTuple):
    """A mapping, and origins (``settings.yaml:12``, or a variable) by `place_of` their paths."""

    values: dict[str, Any]
    origins: Mapping[str, str]

    def with_values(self, values: dict[str, Any]) -> Tree:
        """Other values, with the origins of those that are left."""
        places = map(place_of, paths_of(values))
        return Tree(values, {place: self.origins[place] for place in places if place in self.origins})

    def origins_below(self, path: str, new_path: str) -> dict[str, str]:
        """The origins of what is at and below a path, as those of another path."""
        start = place_of(path)
        rests = {place[len(start) :]: origin for place, origin in self.origins.items() if place.startswith(start)}
        return {
            f"{place_of(new_path)}{rest}".removeprefix("."): origin
            for rest, origin in rests.items() if rest[:1] in ("", ".", "[")
        }  # fmt: skip

    def origin_of(self, path: str | None) -> str | None:
        """The origin of the value at a path, or of the innermost known value around it."""
        place = place_of(path or "")
        while place and place not in self.origins:
            place = _LAST_PART.sub("", place)
        return self.origins.get(place)


class EnvironmentText(str):
    """Text from the environment: its `repr` shows `shown`, so no message contains a secret."""

    shown: str

    def __new__(cls, value: str, shown: str) -> EnvironmentText:
        text = super().__new__(cls, value)
        text.shown = shown
        return text

    def __repr__(self) -> str:
        return repr(self.shown)


def place_of(path: str) -> str:
    """A path in the form that camelCase and snake_case share; names that differ in their first letter stay apart."""
    return _CAMEL.sub(lambda hump: f"_{hump[0].lower()}", path)


def path_of(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def paths_of(value: Any, path: str = "") -> Iterator[str]:
    """The paths of everything inside of a value that is at `path`."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        inner = path_of(path, key)
        yield inner
        yield from paths_of(item, inner)


def map_texts(value: Any, change: Callable[[str, str], str], path: str = "") -> Any:
    """The value with `change(text, path)` in place of each text."""
    if isinstance(value, dict):
        return {key: map_texts(item, change, path_of(path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [map_texts(item, change, path_of(path, index)) for index, item in enumerate(value)]
    return change(value, path) if isinstance(value, str) else value


def merge(base: Tree, over: Tree) -> Tree:
    """The base with `over` on top: mappings merge key by key; lists and everything else are replaced.

    A mapping with another ``type`` replaces the whole; a `sample_rate` replaces a `sampler` below it, and vice versa.
    """
    return Tree({}, {**base.origins, **over.origins}).with_values(_merged(base.values, over.values))


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    if "type" in over and over["type"] != base.get("type"):
        return over
    removed = {EXCLUSIVE[key] for key in over if key in EXCLUSIVE and EXCLUSIVE[key] not in over}
    merged = {key: value for key, value in base.items() if key not in removed}
    for key, value in over.items():
        below = base.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = _merged(below, value)
        merged[key] = value
    return merged
