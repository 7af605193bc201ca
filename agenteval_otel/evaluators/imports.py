"""Where a class or a function can be imported from, and the way back: how evaluators are named to another process."""

from __future__ import annotations

import importlib
import sys
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
    target: Any = sys.modules.get(module)
    for name in path.split("."):
        target = getattr(target, name, None)
    if target is not thing:
        raise LookupError(f"{path} is not what {module} has by this name")
    return module, path


def imported(module: str, path: str) -> Any:
    """What stands under a module and a qualified name.

    Raises:
        Exception: Whatever the import raises.
    """
    target: Any = importlib.import_module(module)
    for name in path.split("."):
        target = getattr(target, name)
    return target


def qualified_name(function: Any) -> str:
    """The module and the qualified name of a function; of an object that can be called, those of its class."""
    function = getattr(function, "func", function)  # functools.partial
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
