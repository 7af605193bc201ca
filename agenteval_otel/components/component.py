"""Component: a frozen model that configuration chooses by ``type``.

A registry has the types of each contract.
"""

from __future__ import annotations

import hashlib
import json
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    computed_field,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from agenteval_otel.components.explained import FriendlyErrors, explain_validation
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.masking import mask


class FreshCopies(BaseModel, metaclass=FriendlyErrors):
    """Makes models whose copies and pickles hold its fields alone.

    Its cached bounds, connections and guards are left out.
    """

    def __copy__(self) -> Self:
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return super(FreshCopies, self.__copy__()).__deepcopy__(memo)

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        fields = type(self).model_fields
        return {
            **state,
            "__dict__": {
                name: value for name, value in state["__dict__"].items() if name in fields
            },
        }


class Registry(UserDict[str, Any]):
    """Holds the classes of a contract by their types.

    An announced type maps to its module, imported when it is chosen.
    """

    def announce(self, module: str, *types: str) -> None:
        """Note that the module registers the types when it is imported."""
        self.data |= dict.fromkeys(types, module)

    def __getitem__(self, name: str) -> Any:
        if isinstance(self.data[name], str):
            import_module(self.data[name])
        return self.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self.data))  # an import may register further ones


T = TypeVar("T")
if TYPE_CHECKING:
    ListOf = Sequence[T]
else:
    ListOf = tuple[T, ...]
"""A field that takes any list and holds a tuple. To type checkers it is a sequence, so that a list may be
given.
"""


class Component(FreshCopies):
    """A part chosen by ``type``: frozen, strict about unknown fields, dumped with its type.

    A direct subclass with ``contract="..."`` in the class line is an extension point. An
    implementation names its ``type="..."`` there. Field names are snake_case. camelCase is read
    too, and written with ``by_alias``. Lazily made parts belong into `functools.cached_property`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        loc_by_alias=False,  # errors use the documented names
        arbitrary_types_allowed=True,
        ignored_types=(cached_property,),
        # a process uses few of the many parts: building all would slow the import
        defer_build=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    contract: ClassVar[str] = "component"
    component_type: ClassVar[str] = ""
    text_pattern: ClassVar[str] = ""  # of a contract: other texts that name a part, beside its type
    has_short_form: ClassVar[bool] = False  # of a contract: a type may be the key of its fields
    text_field: ClassVar[str] = ""  # of a type: what a text in the place of its fields is
    registry: ClassVar[Registry] = Registry()
    fingerprint_exclude: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # the class line's words are read by the hook below, once the fields are known
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(
        cls, *, type: str | None = None, contract: str | None = None, **kwargs: Any
    ) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if contract is not None:
            cls.contract = contract
            cls.registry = Registry()
            cls.component_type = ""
            return
        if type is None:
            return
        is_announced_here = cls.registry.data.get(type) == cls.__module__
        had = None if is_announced_here else cls.registry.get(type)
        if had is not None and had.__qualname__ != cls.__qualname__:
            raise ConfigurationError(
                f"{cls.contract} type {type!r} is taken by {had.__module__}.{had.__qualname__}"
            )
        cls.component_type = type
        cls.registry[type] = cls

    @computed_field  # type: ignore[prop-decorator]
    @property
    def type(self) -> str:
        """Return the word that configuration chooses this class by."""
        return self.component_type or self.__class__.__name__

    @model_validator(mode="before")
    @classmethod
    def _type_belongs_to_class(cls, data: object) -> Any:
        if not isinstance(data, Mapping) or "type" not in data:
            return data
        if data["type"] != cls.component_type:
            raise ValueError(f"type {data['type']!r} is not {cls.component_type!r}")
        return {key: value for key, value in data.items() if key != "type"}

    @model_serializer(mode="wrap")
    def _masked(self, dump: Callable[[Any], dict[str, Any]], info: Any) -> dict[str, Any]:
        # Dumps are shown, logged and stored: secrets are in them only on request.
        context = info.context or {}
        fields = dump(self)
        if context.get("versioned"):
            left_out = self.fingerprint_exclude
            fields = {name: value for name, value in fields.items() if name not in left_out}
        return fields if context.get("secrets") else mask(fields)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, mask(value, name or "")

    def __str__(self) -> str:
        """Return a form for people: its type, and the fields that were set."""
        dump = self.model_dump(mode="json", fallback=repr, include=set(self.model_fields_set))
        fields = ", ".join(f"{name} {value}" for name, value in dump.items() if name != "type")
        return f"{self.type} ({fields})" if fields else self.type

    @cached_property
    def fingerprint(self) -> str:
        """Return twelve hexadecimal digits that change when the configuration changes.

        They are from the SHA-256 of `fingerprint_source`.
        """
        return hashlib.sha256(self.fingerprint_source().encode("utf-8", "replace")).hexdigest()[:12]

    def fingerprint_source(self) -> str:
        """Return its configuration as sorted JSON.

        `fingerprint_exclude`, its own and its parts', is left out. It is as slow as a dump.
        """
        fields = self.model_dump(mode="json", fallback=repr, context={"versioned": True})
        return json.dumps(fields, sort_keys=True, default=repr)

    @classmethod
    def load(
        cls,
        data: Mapping[str, Any],
        *,
        path: str | None = None,
        context: dict[str, Any] | None = None,
    ) -> Self:
        """Build from configuration.

        A `ConfigurationError` has the field's path, its value and what was expected.
        """
        try:
            return cls.model_validate(dict(data), context=context)
        except ValidationError as error:
            raise explain_validation(error, cls, path=path) from None
        except (
            ConfigurationError
        ) as error:  # of a part inside of this one, which knows its own place only
            raise error.with_prefix(path) from error
