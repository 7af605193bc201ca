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
from types import FunctionType, GetSetDescriptorType, MethodType, ModuleType
from typing import Any, Final

from agenteval_otel.capture.classes import bases_of, members_of
from agenteval_otel.capture.classes import module_of as module_of_class

STANDARD_LIBRARY: Final = sys.stdlib_module_names | {"builtins"}
"""Top-level names of modules that come with Python."""
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_MAIN: Final = "__main__"
_MOST_WRAPPERS: Final = 32
_namespace_of: Final[Callable[[Any], dict[str, Any]]] = vars(ModuleType)["__dict__"].__get__


def module_of(function: Any) -> str | None:
    """Return the name of the module that a handler was written in. Runs no code of the host."""
    for _ in range(_MOST_WRAPPERS):
        kind = type(function)
        if issubclass(kind, partial | MethodType):
            function = function.func if issubclass(kind, partial) else function.__func__
            continue
        if issubclass(kind, FunctionType):
            return _text(function.__module__)
        own = {} if issubclass(kind, type) else _stored_fields(function, kind)
        if "__wrapped__" not in own:  # else what a decorator made, such as a cache
            module = own.get("__module__")
            return _text(module) or module_of_class(function if issubclass(kind, type) else kind)
        function = own["__wrapped__"]
    return None


def _text(value: object) -> str | None:
    return value if type(value) is str else None


def _stored_fields(value: object, kind: type) -> dict[str, Any]:
    """Return the fields that an object stores, where no code of its class is needed for it."""
    for base in bases_of(kind):
        descriptor = members_of(base).get("__dict__")
        if descriptor is not None:
            is_native = type(descriptor) is GetSetDescriptorType
            stored = object.__getattribute__(value, "__dict__") if is_native else None
            return stored if type(stored) is dict else {}
    return {}


@lru_cache(maxsize=4_096)
def is_own(module: str, handler: str | None) -> bool:
    """Tell whether classes of a module are the standard library's or the handler's own.

    Args:
        module: The module of the class, or its top-level package.
        handler: The module of the handler. None if no handler is known.
    """
    package = _package_of(module)
    if package in STANDARD_LIBRARY:
        return True
    if handler is None:
        return False
    own = _package_of(handler)
    return package == own or _are_neighbours(package, own)


def _package_of(module: str) -> str:
    """Return the top-level package of a module. Of a package that is run it is its name."""
    if module == _MAIN:
        spec = _fields(_MAIN).get("__spec__")
        module = getattr(spec, "parent", None) or _MAIN
    return module.partition(".")[0]


def _are_neighbours(package: str, own: str) -> bool:
    """Tell whether two top-level packages or modules lie in one folder of the application's."""
    folder = _folder_of(package)
    return folder is not None and folder == _folder_of(own)


def _folder_of(package: str) -> str | None:
    """Return the folder that a top-level package or module lies in. None for installed ones."""
    fields = _fields(package)
    file = fields.get("__file__")
    if package == _MAIN and file is None:
        return _working_folder()  # of a notebook or a prompt: it imports what lies there
    path = fields.get("__path__")
    if type(file) is str:
        folder = os.path.dirname(os.path.abspath(file))
        folder = folder if path is None else os.path.dirname(folder)
    else:
        folders = _folders_of_namespace(path)
        if not folders:
            return None
        folder = os.path.dirname(os.path.abspath(folders[0]))
    return None if os.path.basename(folder) in _INSTALLED else folder


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _folders_of_namespace(path: Any) -> list[str]:
    """Return the folders of a package without a file of its own. Anything else has none."""
    # The standard library's object for it, which has no public way to the list that it holds.
    is_standard = module_of_class(type(path)).startswith("_frozen_importlib")
    folders = path._path if is_standard else path
    is_list = type(folders) is list and all(type(folder) is str for folder in folders)
    return folders if is_list else []


def _fields(module: str) -> dict[str, Any]:
    known = sys.modules.get(module)
    return _namespace_of(known) if issubclass(type(known), ModuleType) else {}
