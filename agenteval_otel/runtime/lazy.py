"""Names of a package whose modules are imported with the first use of a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module
from typing import Any


def importing(
    namespace: MutableMapping[str, Any], module_of: Mapping[str, str]
) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `namespace` is its ``globals()``, which keeps what was
    imported.
    """

    def __getattr__(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(module), name)
        return value

    return __getattr__
