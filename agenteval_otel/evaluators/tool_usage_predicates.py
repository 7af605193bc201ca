"""Predicates: what a single argument of a tool call has to be, as a file can say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from agenteval_otel.errors import EvaluationError
from agenteval_otel.runtime.patterns import Pattern, compile_pattern

__all__ = ["SETTINGS", "JsonType", "Predicate", "argument_at"]

JsonType = Literal["string", "number", "integer", "boolean", "array", "object", "null"]
ABSENT: Final = object()
_INDEX = re.compile(r"[0-9]{1,9}")
SETTINGS = ConfigDict(
    frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True,
    loc_by_alias=False, ignored_types=(cached_property,), allow_inf_nan=False, hide_input_in_errors=True,
)  # fmt: skip
"""Of everything that is written down inside of an evaluator."""


class Predicate(BaseModel):
    """What one argument has to be; everything that is said must hold. An argument that is not there fails.

    Attributes:
        present: False: the argument must not be given; true asks for nothing but that it is.
        optional: An argument that is not given passes.
        type: Its JSON type, or several of which one; ``integer`` takes 2.0, ``number`` takes no booleans.
        equals: The very value; 1 and 1.0 are equal, true is not 1.
        one_of: Some values, of which it is one.
        min: The least number that it may be.
        max: The largest number that it may be.
        min_length: The least length of a text, a list or an object.
        max_length: The largest length of a text, a list or an object.
        contains: What a text has in it, or a list among its items.
        pattern: A regular expression (as in `RuleBased`) that occurs in a text.
        not_empty: Not null, not blank as text, not empty as a list or an object.
    """

    model_config = SETTINGS

    present: bool = True
    optional: bool = False
    type: JsonType | tuple[JsonType, ...] = ()
    equals: Any = None
    one_of: tuple[Any, ...] = ()
    min: float | None = None
    max: float | None = None
    min_length: int | None = Field(default=None, ge=0)
    max_length: int | None = Field(default=None, ge=0)
    contains: Any = None
    pattern: str | None = None
    not_empty: bool = False

    @field_validator("type", mode="wrap")
    @classmethod
    def _types_are_known(cls, value: Any, handler: Any) -> Any:
        """By hand: the union's own way would put its members into the path of an error."""
        given = (value,) if isinstance(value, str) else value
        if not isinstance(given, list | tuple) or not all(kind in get_args(JsonType) for kind in given):
            raise ValueError(f"expected one or several of {', '.join(get_args(JsonType))}")
        return value if isinstance(value, str) else tuple(given)

    @field_validator("pattern")
    @classmethod
    def _pattern_compiles(cls, value: str | None) -> str | None:
        if value is not None:
            compile_pattern(value)
        return value

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if not self.present and self.model_fields_set - {"present"}:
            raise ValueError("an argument that must not be present cannot be anything else")
        for least, most in ((self.min, self.max), (self.min_length, self.max_length)):
            if least is not None and most is not None and least > most:
                raise ValueError(f"nothing is at least {least:g} and at most {most:g}")
        return self

    @model_serializer(mode="wrap")
    def _only_what_is_said(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # That nothing is said of a value and that it has to be null are told apart by what was set.
        said = self.model_fields_set | {to_camel(name) for name in self.model_fields_set}
        return {name: value for name, value in dump(self).items() if name in said}

    @cached_property
    def compiled(self) -> Pattern | None:
        """The pattern, ready to search."""
        return None if self.pattern is None else compile_pattern(self.pattern)

    def problem(self, value: Any) -> str | None:
        """What is wrong with the value of the argument; None when nothing is.

        Raises:
            EvaluationError: (``timeout``) The pattern takes too long on it.
        """
        if value is ABSENT:
            return None if self.optional or not self.present else "is missing"
        if not self.present:
            return "must not be given"
        types = (self.type,) if isinstance(self.type, str) else self.type
        if types and not any(_is_type(value, kind) for kind in types):
            return f"is no {' or '.join(types)}"
        return self._wrong_value(value) or self._wrong_size(value)

    def _wrong_value(self, value: Any) -> str | None:
        if "equals" in self.model_fields_set and not _same(value, self.equals):
            return "is not the expected value"
        if self.one_of and not any(_same(value, one) for one in self.one_of):
            return "is none of the expected values"
        if "contains" in self.model_fields_set and not _contains(value, self.contains):
            return "does not contain what is expected"
        return None if self.compiled is None or self._matches(value) else "does not match the pattern"

    def _matches(self, value: Any) -> bool:
        try:
            return isinstance(value, str) and self.compiled is not None and self.compiled.occurs_in(value)
        except TimeoutError:
            raise EvaluationError("the pattern takes too long on the argument", error_type="timeout") from None

    def _wrong_size(self, value: Any) -> str | None:
        if self.not_empty and (value is None or (_has_length(value) and not _visible(value))):
            return "is empty"
        for least, most, measured in (
            (self.min, self.max, value if _is_type(value, "number") else None),
            (self.min_length, self.max_length, len(value) if _has_length(value) else None),
        ):
            if least is None and most is None:
                continue
            if measured is None:
                return "has no size that could be compared"
            if least is not None and not measured >= least:
                return "is too small"
            if most is not None and not measured <= most:  # said so for NaN, which compares to nothing
                return "is too large"
        return None


def argument_at(value: Any, name: str) -> Any:
    """The argument of that name, or what lies at a dotted path inside of the arguments; `ABSENT` without.

    As in the paths of an input's fields, the index of a list is a segment: ``items.0.id``.
    """
    if isinstance(value, Mapping) and name in value:
        return value[name]
    for key in name.split("."):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list | tuple) and _INDEX.fullmatch(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            return ABSENT
    return value


def _has_length(value: Any) -> bool:
    return isinstance(value, str | list | tuple | Mapping)


def _visible(value: Any) -> bool:
    return bool(value.strip() if isinstance(value, str) else value)


def _is_type(value: Any, kind: str) -> bool:
    if kind in ("number", "integer"):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and (kind == "number" or value == value // 1)
    types: dict[str, Any] = {"string": str, "boolean": bool, "array": list | tuple, "object": Mapping}
    return value is None if kind == "null" else isinstance(value, types[kind])


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 is 1.0, and true is neither."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, str):
        return isinstance(wanted, str) and wanted in value
    return isinstance(value, list | tuple) and any(_same(item, wanted) for item in value)
