"""Where a class or a function can be imported from, and the way back: how evaluators are named to another process."""

from __future__ import annotations

import importlib
import sys
from operator import attrgetter
from typing import Any

MAIN = "__main__"


def importable(thing: Any) -> tuple[str, str]:
    """The module and the qualified name under which a class or a function can be had.

    Raises:
        LookupError: What stands there is not this very thing: it is local to a function, a lambda, wrapped or renamed.
            The text is our own, and names it.
    """
    module, path = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(path, str):
        raise LookupError(f"an object of class {type(thing).__name__} has no name to import it by")
    try:
        target = attrgetter(path)(sys.modules.get(module))
    except AttributeError:
        target = None
    if target is not thing:
        raise LookupError(f"{path} is not what {module} has by this name")
    return module, path


def imported(module: str, path: str) -> Any:
    """What stands under a module and a qualified name; raises whatever the import raises."""
    return attrgetter(path)(importlib.import_module(module))


def qualified_name(function: Any) -> str:
    """The module and the qualified name of a function; of an object that can be called, those of its class."""
    function = getattr(function, "func", function)  # functools.partial
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
