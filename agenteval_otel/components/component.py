"""Component: a frozen model that configuration chooses by ``type``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    computed_field,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from agenteval_otel.components.copies import FreshCopies
from agenteval_otel.components.explained import Explained, explain_validation
from agenteval_otel.components.registry import Registry
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.masking import mask

__all__ = ["Component", "ListOf"]

T = TypeVar("T")
if TYPE_CHECKING:
    from collections.abc import Sequence as ListOf
else:
    ListOf = tuple[T, ...]
"""A field that takes any list and holds a tuple; to type checkers a sequence, so that a list may be given."""


class Component(FreshCopies, BaseModel, metaclass=Explained):
    """A part chosen by ``type``: frozen, strict about unknown fields, dumped with its type.

    Field names are snake_case; camelCase is read too and written with ``by_alias``. Lazily made parts belong into
    `functools.cached_property`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        loc_by_alias=False,  # what is wrong is named as it is documented
        arbitrary_types_allowed=True,
        ignored_types=(cached_property,),
        defer_build=True,  # of the many parts that are there a process uses few: import would pay for all
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    contract: ClassVar[str] = "component"
    component_type: ClassVar[str] = ""
    registry: ClassVar[Registry] = Registry()
    unversioned: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__()  # the class line's words are read by the hook below, once the fields are known

    @classmethod
    def __pydantic_init_subclass__(cls, *, type: str | None = None, contract: str | None = None, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if contract is not None:
            cls.contract, cls.registry, cls.component_type = contract, Registry(), ""
            return
        if type is None:
            return
        had = cls.registry.taken_by(type, by=cls.__module__)
        if had is not None and had.__qualname__ != cls.__qualname__:
            raise ConfigurationError(f"{cls.contract} type {type!r} is taken by {had.__module__}.{had.__qualname__}")
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

    @model_serializer(mode="wrap")
    def _masked(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        # A dump is shown, logged, kept: only who asks for the secrets by this word gets them.
        context, out = info.context or {}, self.unversioned
        fields = {name: value for name, value in dump(self).items() if name not in out or not context.get("versioned")}
        return fields if context.get("secrets") else mask(fields)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, mask(value, name or "")

    def __str__(self) -> str:
        """For people: its type, and the fields that were set."""
        dump = self.model_dump(mode="json", fallback=repr, include=set(self.model_fields_set))
        fields = ", ".join(f"{name} {value}" for name, value in dump.items() if name != "type")
        return f"{self.type} ({fields})" if fields else self.type

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change when the configuration changes (SHA-256 of `versioned`)."""
        return hashlib.sha256(self.versioned().encode("utf-8", "replace")).hexdigest()[:12]

    def versioned(self) -> str:
        """Its configuration as sorted JSON, without what no result depends on: `unversioned`, its own and its parts'.

        To be kept by who needs it often: it takes as long as a dump.
        """
        fields = self.model_dump(mode="json", fallback=repr, context={"versioned": True})
        return json.dumps(fields, sort_keys=True, default=repr)

    @classmethod
    def load(cls, data: Mapping[str, Any], *, path: str | None = None, context: dict[str, Any] | None = None) -> Self:
        """Build from configuration, explaining what is wrong by the field's path.

        Raises:
            ConfigurationError: With the path of the field, what was found and what was expected.
        """
        try:
            return cls.model_validate(dict(data), context=context)
        except ValidationError as error:
            raise explain_validation(error, cls, path=path) from None
        except ConfigurationError as error:  # of a part inside of this one, which knows its own place only
            raise error.under(path) from error
