"""Loading components: from a mapping, a type's name, a class or an object.

The plugins that settings list are loaded first.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any, Final, TypeVar, cast

from agenteval_otel.components.component import Component
from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.named_modules import naming

C = TypeVar("C", bound=Component)
T = TypeVar("T")
_SHOWN_KEYS: Final = 5
_SHOWN_CHARS: Final = 80


def resolve(
    contract: type[C],
    value: object,
    *,
    path: str | None = None,
    context: dict[str, Any] | None = None,
) -> C:
    """Turn an instance, a ``{type: ...}`` mapping or the name of a type into a component.

    A contract with `has_short_form` also takes ``{a_type: fields}``. Raises `ConfigurationError`.
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
    if contract.has_short_form and "type" not in value:
        return _resolve_short(contract, value, path=path, context=context)
    name = value.get("type")
    if not isinstance(name, str) or name not in contract.registry:
        wrong = "'type' is missing"
        if name is not None:
            wrong = f"unknown {contract.contract} type {_shown(name)}"
        raise ConfigurationError(
            f"{wrong}{known_choices(name, sorted(contract.registry))}", path=path
        )
    return cast(C, contract.registry[name].load(value, path=path, context=context))


def _resolve_short(
    contract: type[C],
    value: Mapping[Any, Any],
    *,
    path: str | None,
    context: dict[str, Any] | None,
) -> C:
    """Turn ``{a_type: fields}`` into a component. A text is the type's `text_field`."""
    name = next(iter(value), "")
    if len(value) != 1 or name not in contract.registry:
        keys = ", ".join(_shown(key) for key in [*value][:_SHOWN_KEYS]) or "no key"
        wrong = f"expected 'type', or a type as the only key with its fields below it, found {keys}"
        unknown = name if name not in contract.registry else None
        choices = known_choices(unknown, sorted(contract.registry))
        raise ConfigurationError(f"{wrong}{choices}", path=path)
    model = contract.registry[name]
    fields = {} if value[name] is None else value[name]
    if isinstance(fields, str) and model.text_field:
        fields = {model.text_field: fields}
    path = f"{path}.{name}" if path else name
    if not isinstance(fields, Mapping):
        text = f"its {model.text_field} or " if model.text_field else ""
        wrong = f"expected {text}a mapping of its fields, found {fields.__class__.__name__}"
        known = ", ".join(model.model_fields)
        raise ConfigurationError(f"{wrong}. Known: {known}", path=path)
    return cast(C, model.load(fields, path=path, context=context))


def _shown(name: object) -> str:
    """Return what stands where a type is expected. An address, which may be a secret, is not shown."""
    shown = repr(name)
    return "(an address)" if "/" in shown else shown[:_SHOWN_CHARS]


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
