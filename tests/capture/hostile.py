"""Values of the host's own classes that raise when they are touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

__all__ = [
    "Broken",
    "BrokenList",
    "BrokenMapping",
    "BrokenText",
    "Hostile",
    "NoClass",
    "any_text",
    "errors",
]

# lone surrogates included
any_text = st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF))
errors = st.sampled_from(
    [ValueError("x"), KeyError("x"), RecursionError("x"), MemoryError("x"), TypeError("x")]
)


def _raise(*_: Any, **__: Any) -> Any:
    raise RuntimeError("touched")


def breaking(base: type, *methods: str) -> Any:
    """A class whose methods of these names raise."""
    return type(f"Broken{base.__name__}", (base,), dict.fromkeys(methods, _raise))


BrokenText = breaking(str, "__len__", "__contains__", "encode", "__str__")
BrokenList = breaking(list, "__len__", "__iter__", "__sizeof__", "__getitem__")
BrokenMapping = breaking(Mapping, "__getitem__", "__iter__", "__len__", "get")
NoClass = type("NoClass", (), {"__class__": property(_raise)})
Hostile = breaking(
    object,
    "__getattribute__",
    "__getitem__",
    "__bool__",
    "__len__",
    "__iter__",
    "__sizeof__",
    "__repr__",
    "__str__",
    "__hash__",
    "__call__",
    "__eq__",
)


class Broken:
    """Raises one error from one method."""

    def __init__(self, method: str, error: Exception) -> None:
        self.method = method
        self._error = error

    def _result(self, method: str, result: Any) -> Any:
        if self.method == method:
            raise self._error
        return result

    def __str__(self) -> str:
        return str(self._result("__str__", "text"))

    def __repr__(self) -> str:
        return str(self._result("__repr__", "text"))

    def __len__(self) -> int:
        return int(self._result("__len__", 1))

    def __iter__(self) -> Any:
        return self._result("__iter__", iter("a"))
