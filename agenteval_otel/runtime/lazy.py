"""Names of a package whose modules are imported with the first use of a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module
from typing import Any


def importing(
    namespace: MutableMapping[str, Any],
    module_of: Mapping[str, str],
    other_names: Mapping[str, str] | None = None,
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        namespace: Its ``globals()``, which keeps what was imported.
        module_of: The module of each name.
        other_names: Names of other products, and what the same is called here.
    """

    def __getattr__(name: str) -> Any:
        module = module_of.get(name)
        if module is None and other_names is not None and name in other_names:
            raise no_such_name(namespace["__name__"], name, other_names[name])
        if module is None:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(module), name)
        return value

    return __getattr__


def no_such_name(package: str, name: str, meant: str) -> ImportError:
    """Return the error for a name of another product.

    It is an `ImportError`: of an `AttributeError` an import statement shows no text.
    """
    return ImportError(f"cannot import name {name!r} from {package!r}: here it is {meant}")
