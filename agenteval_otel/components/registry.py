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

    def taken_by(self, word: str, *, by: str) -> Any:
        """The class that has the word when the module `by` registers one; None where it is free."""
        if self._announced.get(word) == by:  # which is being imported now
            return self._classes.get(word)
        return self.get(word)

    def __getitem__(self, word: str) -> Any:
        if word not in self._classes and word in self._announced:
            import_module(self._announced[word])
        return self._classes[word]

    def __setitem__(self, word: str, registered: Any) -> None:
        self._classes[word] = registered

    def __delitem__(self, word: str) -> None:
        del self._classes[word]

    def __contains__(self, word: object) -> bool:
        return word in self._classes or word in self._announced

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._announced, *self._classes)))

    def __len__(self) -> int:
        return len(self._announced.keys() | self._classes.keys())
