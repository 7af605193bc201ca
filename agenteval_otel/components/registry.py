"""Registry: the classes of one contract, by the words that settings choose them by."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

__all__ = ["Registry"]


class Registry(MutableMapping[str, Any]):
    """The classes of a contract by their words.

    A room may announce words of classes that it has in modules of its own: they can be chosen like the others, and are
    imported when they are.
    """

    def __init__(self) -> None:
        self._classes: dict[str, Any] = {}
        self._announced: dict[str, str] = {}

    def announce(self, module: str, *words: str) -> None:
        """The module registers the words when it is imported."""
        self._announced |= dict.fromkeys(words, module)

    def taken_by(self, name: str, *, by: str) -> Any:
        """The class that has the word when the module `by` registers one; None where it is free."""
        if self._announced.get(name) == by:  # which is being imported now
            return self._classes.get(name)
        return self.get(name)

    def __getitem__(self, name: str) -> Any:
        if name not in self._classes and name in self._announced:
            import_module(self._announced[name])
        return self._classes[name]

    def __setitem__(self, name: str, registered: Any) -> None:
        self._classes[name] = registered

    def __delitem__(self, name: str) -> None:
        del self._classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._classes or name in self._announced

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._announced, *self._classes)))

    def __len__(self) -> int:
        return len(self._announced.keys() | self._classes.keys())
