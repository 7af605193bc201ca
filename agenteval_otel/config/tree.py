"""The tree of a settings file before it becomes `Settings`.

It has plain values, and the origin of each by its path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

MAX_DEPTH = 32
MAX_VALUES = 10_000
EXCLUSIVE = {"sample_rate": "sampler", "sampler": "sample_rate"}
"""Setting one removes the other from the layer below."""
_CAMEL = re.compile(r"(?<=[a-z0-9])[A-Z]")
_LAST_PART = re.compile(r"(?:^|\.|\[)[^.\[]*\Z")


class Tree(NamedTuple):
    """Holds a mapping, and the origin of each value.

    An origin is ``settings.yaml:12``, or a variable. It is found by the value's path, as the path
    is written. The root is the path of the mapping in its file, if it is a part of the file.
    """

    values: dict[str, Any]
    origins: dict[str, str]
    root: str = ""

    def with_values(self, values: dict[str, Any]) -> Tree:
        """Return a tree with other values, and with the origins of those that are left."""
        origins = {path: self.origins[path] for path in paths_of(values) if path in self.origins}
        return Tree(values, origins, self.root)

    def origins_below(self, path: str, new_path: str) -> dict[str, str]:
        """Return the origins of what is at and below a path, as those of another path."""
        origins = {}
        for known, origin in self.origins.items():
            if known == path or known.startswith((f"{path}.", f"{path}[")):
                moved = new_path + known.removeprefix(path)
                origins[moved.removeprefix(".")] = origin
        return origins

    def origin_of(self, path: str | None) -> str | None:
        """Return the origin of the value at a path, or of the innermost known value around it.

        Errors have the names of fields, where the file may have their camelCase: both are compared
        in snake_case.
        """
        origins = {_snake_case(known): origin for known, origin in self.origins.items()}
        path = _snake_case(path or "")
        while path and path not in origins:
            path = _LAST_PART.sub("", path)
        return origins.get(path)


def _snake_case(path: str) -> str:
    """Return the path in snake_case.

    Names that differ in their first letter stay apart: an agent `Support` is not `support`.
    """
    return _CAMEL.sub(lambda capital: f"_{capital[0].lower()}", path)


def path_of(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def paths_of(value: object, path: str = "") -> Iterator[str]:
    """Yield the paths of everything inside of a value that is at `path`."""
    if isinstance(value, dict):
        entries: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    else:
        entries = ()
    for key, item in entries:
        inner = path_of(path, key)
        yield inner
        yield from paths_of(item, inner)


def map_texts(value: object, change: Callable[[str, str], str], path: str = "") -> Any:
    """Return the value with `change(text, path)` for each text."""
    if isinstance(value, dict):
        return {key: map_texts(item, change, path_of(path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [map_texts(item, change, path_of(path, index)) for index, item in enumerate(value)]
    if isinstance(value, str):
        return change(value, path)
    return value


def merge(base: Tree, over: Tree) -> Tree:
    """Return the base with `over` on top. Mappings merge key by key.

    Lists and everything else are replaced.

    A mapping with another ``type`` replaces the whole. A `sample_rate` replaces a `sampler` below
    it, and vice versa.
    """
    both = Tree({}, {**base.origins, **over.origins}, base.root)
    return both.with_values(_merged(base.values, over.values))


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    if "type" in over and over["type"] != base.get("type"):
        return over
    excluded = {EXCLUSIVE[key] for key in over if key in EXCLUSIVE}
    removed = excluded - over.keys()
    merged = {key: value for key, value in base.items() if key not in removed}
    for key, value in over.items():
        below = base.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = _merged(below, value)
        merged[key] = value
    return merged
