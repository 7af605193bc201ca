"""Snapshots: values as they are now, whatever their makers do to lists and mappings afterwards.

A frozen value still holds the lists and mappings that it was made of. Offline a result keeps its input, so it gets an
input of its own; live ones are built from text and bounded copies anyway.
"""

from __future__ import annotations

from typing import Any, TypeVar

from agenteval_otel.models.value import Value, replaced

__all__ = ["snapshot_of"]

T = TypeVar("T")
MAX_DEPTH = 200
"""What is nested deeper is taken as it is from there on."""


def snapshot_of(value: T) -> T:
    """A copy in which every list, mapping, set and value is its own; all else (text, numbers, objects) is shared.

    Lists and mappings of classes of their own become plain ones.
    """
    copied: T = _copied(value, MAX_DEPTH, {})
    return copied


def _copied(value: Any, depth: int, known: dict[int, Any]) -> Any:
    if depth == 0 or not (isinstance(value, dict | list | set | Value) or type(value) is tuple):
        return value
    if id(value) in known:  # the same thing in two places, or within itself
        return known[id(value)]
    copied: Any
    if isinstance(value, dict):
        copied = known[id(value)] = {}
        copied.update({key: _copied(item, depth - 1, known) for key, item in dict.items(value)})
    elif isinstance(value, list):
        copied = known[id(value)] = []
        copied.extend([_copied(item, depth - 1, known) for item in list.__iter__(value)])
    elif isinstance(value, set):
        copied = known[id(value)] = set(value)  # what can stand in a set does not change
    elif isinstance(value, tuple):
        copied = known[id(value)] = tuple(_copied(item, depth - 1, known) for item in value)
    else:
        fields = {name: getattr(value, name) for name in value.model_fields_set}
        copied = replaced(value, {name: _copied(item, depth - 1, known) for name, item in fields.items()})
        known[id(value)] = copied
    return copied
