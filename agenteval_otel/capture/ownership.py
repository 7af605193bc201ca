"""Which objects are the handler's own data, and which are another library's.

The rule: an object is the handler's own if the top-level package of its class is the handler's or
the standard library's, or that package lies in the same folder as the handler's. A folder of installed
distributions has no neighbours: there only the handler's own package counts. An object of any other
package is another library's. Only a response format, or a field that is known to hold text, can tell
what such an object means. The JSON of its fields is no answer that a user saw.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

STANDARD_LIBRARY: Final = sys.stdlib_module_names | {"builtins"}
"""Top-level names of modules that come with Python."""
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_MAIN: Final = "__main__"
_module_from: Final[Callable[[type], Any]] = type.__dict__["__module__"].__get__
_namespace_of: Final[Callable[[Any], dict[str, Any]]] = vars(ModuleType)["__dict__"].__get__


def module_of(function: Any) -> str | None:
    """Return the name of the module that a handler was written in; runs no code of the host."""
    kind = type(function)
    while issubclass(kind, partial | MethodType):
        function = function.func if issubclass(kind, partial) else function.__func__
        kind = type(function)
    if issubclass(kind, FunctionType):
        module = function.__module__
    else:
        module = _module_from(function if issubclass(kind, type) else kind)
    return module if type(module) is str else None


@lru_cache(maxsize=4_096)
def is_own(module: str, handler: str | None) -> bool:
    """Tell whether classes of a module are the standard library's or the handler's own.

    Args:
        module: The module of the class, or its top-level package.
        handler: The module of the handler; None where no handler is known.
    """
    package = _package_of(module)
    if package in STANDARD_LIBRARY:
        return True
    if handler is None:
        return False
    own = _package_of(handler)
    return package == own or _are_neighbours(package, own)


def _package_of(module: str) -> str:
    """Return the top-level package of a module; of a package that is run, its name."""
    if module == _MAIN:
        spec = _fields(_MAIN).get("__spec__")
        module = getattr(spec, "parent", None) or _MAIN
    return module.partition(".")[0]


def _are_neighbours(package: str, own: str) -> bool:
    """Tell whether two top-level packages or modules lie in one folder of the application's."""
    folder = _folder_of(package)
    return folder is not None and folder == _folder_of(own)


def _folder_of(package: str) -> str | None:
    """Return the folder that a top-level package or module lies in; None for installed ones."""
    fields = _fields(package)
    file = fields.get("__file__")
    if package == _MAIN and file is None:
        return os.getcwd()  # of a notebook or a prompt: it imports what lies there
    if type(file) is not str:
        return None
    is_package = "__path__" in fields
    folder = os.path.dirname(os.path.abspath(file))
    folder = os.path.dirname(folder) if is_package else folder
    return None if os.path.basename(folder) in _INSTALLED else folder


def _fields(module: str) -> dict[str, Any]:
    known = sys.modules.get(module)
    return _namespace_of(known) if isinstance(known, ModuleType) else {}
