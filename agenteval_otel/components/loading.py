"""Loading components: from a mapping, a type's name, a class or an object.

The plugins that settings list are loaded first.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any, TypeVar, cast

from agenteval_otel.components.component import Component
from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.named_modules import naming

C = TypeVar("C", bound=Component)
T = TypeVar("T")


def resolve(
    contract: type[C],
    value: object,
    *,
    path: str | None = None,
    context: dict[str, Any] | None = None,
) -> C:
    """Turn an instance, a ``{type: ...}`` mapping or the name of a type into a component.

    Raises `ConfigurationError`.
    """
    if isinstance(value, contract):
        return value
    if isinstance(value, str):
        value = {"type": value}
    if not isinstance(value, Mapping):
        expected = (
            f"expected an instance of {contract.__name__}, a mapping with 'type' or a type's name"
        )
        raise ConfigurationError(f"{expected}, found {value.__class__.__name__}", path=path)
    name = value.get("type")
    if not isinstance(name, str) or name not in contract.registry:
        wrong = (
            "'type' is missing" if name is None else f"unknown {contract.contract} type {name!r}"
        )
        raise ConfigurationError(
            f"{wrong}{known_choices(name, sorted(contract.registry))}", path=path
        )
    return cast(C, contract.registry[name].load(value, path=path, context=context))


def resolve_or_wrap(
    contract: type[C],
    value: object,
    *,
    wrap: Callable[[Any], C | None],
    expected: str,
    path: str | None = None,
) -> C:
    """Do as `resolve` does.

    Also, a class becomes an instance with default settings, and `wrap` converts other objects.

    `wrap` returns None for an unsupported object. `expected` describes the supported ones.
    """
    if isinstance(value, (contract, Mapping, str)):
        return resolve(contract, value, path=path)
    if isinstance(value, type):
        if issubclass(value, contract):
            return value.load({}, path=path)
    elif value is not None:
        wrapped = wrap(value)
        if wrapped is not None:
            return wrapped
    known = ", ".join(sorted(contract.registry))
    wanted = f"expected {expected}, a mapping with 'type' or the name of a type ({known})"
    raise ConfigurationError(f"{wanted}, found {type(value).__name__}", path=path)


def import_function(name: str, *, path: str) -> Any:
    """Return what ``module:function`` names.

    It imports the module. Raises ConfigurationError with the path.
    """
    try:
        with naming(name.strip().partition(":")[0]):
            return pkgutil.resolve_name(name.strip())
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}".replace("\n", " ")
        raise ConfigurationError(
            f"{name.strip()[:80]!r} cannot be imported: {reason}", path=path
        ) from error


def load_each(load: Callable[[Any, str], T], values: Iterable[Any], *, path: str) -> tuple[T, ...]:
    """Load every entry of a list with `load(value, path)`.

    The `ConfigurationError` has the problems of all entries.
    """
    loaded: list[T] = []
    problems: list[tuple[str | None, str]] = []
    for index, value in enumerate(values):
        try:
            loaded.append(load(value, f"{path}[{index}]"))
        except ConfigurationError as failure:
            problems += failure.problems
    if problems:
        raise ConfigurationError.of(problems)
    return tuple(loaded)


def import_plugins(names: Sequence[str]) -> None:
    """Import each: the entry point of that name in one of our groups, else the module.

    That runs its code.

    A `ConfigurationError` has ``plugins[<index>]`` as path.
    """
    load_each(_import, names, path="plugins")


def _import(name: str, path: str) -> None:
    points = [
        point
        for point in metadata.entry_points(name=name)
        if point.group.startswith("agenteval_otel.")
    ]
    try:
        for point in points:
            point.load()
        if not points:
            with naming(name):
                importlib.import_module(name)
    except (Exception, SystemExit) as error:
        wrong = f"{name!r} cannot be imported, neither as an entry point nor as a module"
        text = str(error).replace("\n", " ")[:200]
        raise ConfigurationError(f"{wrong}: {type(error).__name__}: {text}", path=path) from error
