"""What a class is, read past its metaclass: no code of the host's runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

bases_of: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__mro__"].__get__
"""Returns the class itself and all its bases, in the order in which attributes are looked up."""
members_of: Final[Callable[[type], Any]] = type.__dict__["__dict__"].__get__
"""Returns what the class itself defines, without its bases, by name."""
name_of: Final[Callable[[type], str]] = type.__dict__["__name__"].__get__
flags_of: Final[Callable[[type], int]] = type.__dict__["__flags__"].__get__
_module_from: Final[Callable[[type], Any]] = type.__dict__["__module__"].__get__


def module_of(kind: type) -> str:
    """Return the name of a class's module. A name that is no text counts as ``builtins``."""
    module = _module_from(kind)
    return module if type(module) is str else "builtins"
