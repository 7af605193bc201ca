"""Component: a frozen model that configuration chooses by ``type``.

Every extension point (evaluators, samplers, storage providers, ...) is a contract: a direct subclass of `Component`.
An implementation names its type in the class line (``class RuleBased(Evaluator, type="RuleBased")``) and is then known
to its contract's registry; no list elsewhere has to learn of it. Nothing here runs while answers are evaluated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError, computed_field, model_validator
from pydantic.alias_generators import to_camel

from agenteval_otel.errors import ConfigurationError

__all__ = ["Component", "Explained", "explain_validation", "resolve"]

C = TypeVar("C", bound="Component")

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class Explained(ModelMetaclass):
    """Metaclass of models that people write down: a wrong field raises `ConfigurationError` with its path."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        """Build an instance, as pydantic does, with the error explained."""
        try:
            return super().__call__(*args, **fields)
        except ValidationError as error:
            raise explain_validation(error, cast(type[BaseModel], cls)) from error


class Component(BaseModel, metaclass=Explained):
    """A part chosen by ``type``: frozen, strict about unknown fields, dumped with its type.

    Field names are snake_case; the camelCase form of the specification is accepted too and written with ``by_alias``.
    Lazily made parts belong into `functools.cached_property`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        arbitrary_types_allowed=True,
        ignored_types=(cached_property,),
    )

    contract: ClassVar[str] = "component"
    component_type: ClassVar[str] = ""
    registry: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__()  # the class line's words are read by the hook below, once the fields are known

    @classmethod
    def __pydantic_init_subclass__(cls, *, type: str | None = None, contract: str | None = None, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if contract is not None:
            cls.contract, cls.registry, cls.component_type = contract, {}, ""
            return
        if type is None:
            return
        known = cls.registry.get(type)
        if known is not None and known.__qualname__ != cls.__qualname__:
            taken = f"{known.__module__}.{known.__qualname__}"
            raise ConfigurationError(f"{cls.contract} type {type!r} is taken by {taken}")
        cls.component_type = type
        cls.registry[type] = cls

    @computed_field  # type: ignore[prop-decorator]
    @property
    def type(self) -> str:
        """The word that configuration chooses this class by."""
        return self.component_type or self.__class__.__name__

    @model_validator(mode="before")
    @classmethod
    def _type_belongs_to_class(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "type" not in data:
            return data
        if data["type"] != cls.component_type:
            raise ValueError(f"type {data['type']!r} is not {cls.component_type!r}")
        return {key: value for key, value in data.items() if key != "type"}

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change when the configuration changes (SHA-256 of the sorted JSON dump)."""
        dump = json.dumps(self.model_dump(mode="json", fallback=repr), sort_keys=True, default=repr)
        return hashlib.sha256(dump.encode("utf-8", "replace")).hexdigest()[:12]

    @classmethod
    def load(cls, data: Mapping[str, Any], *, path: str | None = None, context: dict[str, Any] | None = None) -> Self:
        """Build from configuration, explaining what is wrong by the field's path.

        Raises:
            ConfigurationError: With the path of the field, what was found and what was expected.
        """
        try:
            return cls.model_validate(dict(data), context=context)
        except ValidationError as error:
            raise explain_validation(error, cls, path=path) from error


def resolve(contract: type[C], value: Any, *, path: str | None = None, context: dict[str, Any] | None = None) -> C:
    """Turn an instance or a ``{type: ...}`` mapping into a component of the contract.

    Raises:
        ConfigurationError: Not a component, unknown type (names the known ones) or wrong fields.
    """
    if isinstance(value, contract):
        return value
    if not isinstance(value, Mapping):
        found = value.__class__.__name__
        raise ConfigurationError(
            f"expected an instance of {contract.__name__} or a mapping with 'type', found {found}", path=path
        )
    name = value.get("type")
    if not isinstance(name, str) or name not in contract.registry:
        known = ", ".join(sorted(contract.registry))
        raise ConfigurationError(f"unknown {contract.contract} type {name!r}; known: {known}", path=path)
    return cast(C, contract.registry[name].load(value, path=path, context=context))


def explain_validation(
    error: ValidationError, model: type[BaseModel], *, path: str | None = None
) -> ConfigurationError:
    """Translate pydantic's report: path of the field, found, expected, and the known fields for an unknown one."""
    lines: list[str] = []
    for item in error.errors(include_url=False):
        where = _join(path, item["loc"])
        if item["type"] == "extra_forbidden":
            # Only the outermost model's fields are at hand.
            known = f"; known: {', '.join(sorted(model.model_fields))}" if len(item["loc"]) == 1 else ""
            lines.append(f"{where}: unknown field{known}")
        elif item["type"] == "missing":
            lines.append(f"{where}: required field is missing")
        else:
            expected = item["msg"].removeprefix("Value error, ")
            lines.append(f"{where}: {expected}, found {_shown(item.get('input'))}")
    first = _join(path, error.errors(include_url=False)[0]["loc"]) if error.error_count() else path
    failure = ConfigurationError("; ".join(lines))
    failure.path = first
    return failure


def _join(path: str | None, location: tuple[int | str, ...]) -> str:
    text = path or ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text or "configuration"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{value.__class__.__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."
