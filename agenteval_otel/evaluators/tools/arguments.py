"""What the arguments of a tool call have to be: predicates and a JSON Schema for files, functions for programs."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.imports import importable, imported, qualified_name
from agenteval_otel.evaluators.json_schema import Definition, compiled
from agenteval_otel.evaluators.tools.calls import looks_like_json, parsed_arguments
from agenteval_otel.runtime.masking import is_secret, mask
from agenteval_otel.runtime.patterns import Pattern, compile_pattern

__all__ = [
    "SETTINGS",
    "ArgumentTerms",
    "JsonType",
    "Predicate",
    "answer_of",
    "argument_at",
    "synchronous",
    "with_functions",
    "with_names",
]

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
        types = (value,) if isinstance(value, str) else value
        if not isinstance(types, list | tuple) or not all(kind in get_args(JsonType) for kind in types):
            raise ValueError(f"expected one or several of {', '.join(get_args(JsonType))}")
        return value if isinstance(value, str) else tuple(types)

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
        names = self.model_fields_set | {to_camel(name) for name in self.model_fields_set}
        return {name: value for name, value in dump(self).items() if name in names}

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
        if self.one_of and not any(_same(value, expected) for expected in self.one_of):
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


def _same(first: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 is 1.0, and true is neither."""
    if isinstance(first, bool) or isinstance(other, bool):
        return first is other
    if isinstance(first, Mapping) and isinstance(other, Mapping):
        return first.keys() == other.keys() and all(_same(first[key], other[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(other, list | tuple):
        return len(first) == len(other) and all(map(_same, first, other))
    return bool(first == other)


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, str):
        return isinstance(wanted, str) and wanted in value
    return isinstance(value, list | tuple) and any(_same(item, wanted) for item in value)


class ArgumentTerms(BaseModel):
    """What a rule says of a call's arguments; all of it must hold.

    Attributes:
        argument_checks: What each argument has to be, by its name (``user.city`` looks inside of an object); or, in a
            program, a function of the arguments that gives ``{is_valid, reason}``, a boolean or (boolean, reason).
        arguments_schema: A JSON Schema of all arguments (the extra ``jsonschema``).
    """

    model_config = SETTINGS

    argument_checks: dict[str, Predicate] | SkipJsonSchema[Callable[[Any], Any]] | None = None
    arguments_schema: Definition | None = None

    @field_validator("argument_checks", mode="wrap")
    @classmethod
    def _function_or_predicates(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """Chosen by hand: the union's own way would put its types into the path of an error."""
        if value is None:
            return None
        checks = _read(value) if isinstance(value, str) else value
        if isinstance(checks, Mapping):
            return _PREDICATES.validate_python(dict(checks), context=info.context)
        return synchronous(checks, "arguments")

    @field_serializer("argument_checks")
    def _as_text(self, value: Any, info: SerializationInfo) -> Any:
        # As text, because a dump masks what stands deep inside of it or is called like a secret, arguments too.
        if callable(value):
            return f"function {qualified_name(value)}" if info.mode == "json" else value
        return None if value is None else _written(value, secrets=bool((info.context or {}).get("secrets")))

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            is_mapping = name == "argument_checks" and isinstance(value, Mapping)
            yield name, _written(value, secrets=False) if is_mapping else value

    @cached_property
    def _schema_problems(self) -> Callable[[Any], list[str]]:
        return compiled(json.loads(self.arguments_schema or "true"))

    @property
    def says_nothing(self) -> bool:
        """Whether every call will do."""
        return self.argument_checks is None and self.arguments_schema is None

    @property
    def is_fast(self) -> bool:
        """Whether no arguments can make the checks take long: no function, no schema, no pattern that may be slow."""
        if callable(self.argument_checks) or self.arguments_schema is not None:
            return False
        patterns = (predicate.compiled for predicate in (self.argument_checks or {}).values())
        return all(pattern is None or pattern.is_linear for pattern in patterns)

    def problem(self, arguments: Any) -> str | None:
        """What is wrong with a call's arguments, a value or JSON text; None when nothing is.

        Raises:
            Exception: Whatever a function raises; `EvaluationError` for no answer and a slow pattern.
        """
        value = parsed_arguments(arguments)
        if isinstance(value, str) and looks_like_json(value):  # else it would have been read
            return "they are no JSON"
        if self.arguments_schema is not None and (problems := self._schema_problems(value)):
            return problems[0]
        if callable(self.argument_checks):
            return answer_of(self.argument_checks(value))
        for name, predicate in (self.argument_checks or {}).items():
            if problem := predicate.problem(argument_at(value, name)):
                return f"{name} {problem}"
        return None


_PREDICATES = TypeAdapter(dict[str, Predicate])
_VALUES = frozenset({"equals", "one_of", "contains"})
"""What a predicate says of the value itself: of an argument that is called like a secret it may be the secret."""


def _written(predicates: Mapping[str, Predicate], *, secrets: bool) -> str:
    """Predicates as JSON text; without their secrets, unless these are asked for."""
    written = {name: predicate.model_dump(mode="json", fallback=repr) for name, predicate in predicates.items()}
    if not secrets:
        written = {
            name: {
                key: mask(value, name if is_secret(name) and key in _VALUES else "") for key, value in predicate.items()
            } for name, predicate in written.items()
        }  # fmt: skip
    return json.dumps(written, ensure_ascii=False)  # in order: what is told is the first that is wrong


def _read(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError("expected a mapping of arguments to what they have to be, or JSON text of one")
    return value


def synchronous(value: Any, of: str) -> Any:
    """The function; raises ValueError if it is not callable, or would have to be awaited."""
    if not callable(value):
        raise ValueError(f"expected a function of the {of}, or a mapping of arguments to what they have to be")
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None)):  # noqa: B004
        raise ValueError("expected a function that need not be awaited")
    return value


def answer_of(answer: Any) -> str | None:
    """A function's answer as a problem; None when the arguments are valid.

    Raises:
        EvaluationError: (``invalid_check``) The answer is invalid.
    """
    reason: Any = None
    if isinstance(answer, Mapping):
        reason = answer.get("reason")
        answer = answer.get("isValid", answer.get("is_valid"))
    elif isinstance(answer, tuple) and len(answer) == 2:
        answer, reason = answer
    if not isinstance(answer, bool):
        raise EvaluationError(
            f"expected {{is_valid, reason}}, a boolean or (boolean, reason) from the function, "
            f"found {type(answer).__name__}", error_type="invalid_check",
        )  # fmt: skip
    return None if answer else str(reason or "refused by the function")


def with_names(written: Iterable[dict[str, Any]], rules: Iterable[Any], field: str) -> None:
    """Put where each rule's function can be imported from into its dump. Raises LookupError where it cannot."""
    for fields, rule in zip(written, rules, strict=True):
        if callable(function := getattr(rule, field)):
            fields[field] = importable(function)


def with_functions(written: Iterable[Mapping[str, Any]], field: str) -> list[dict[str, Any]]:
    """The dumps of rules with the functions that `with_names` put down. Raises whatever their import raises."""
    return [
        {**fields, field: imported(*place)} if isinstance(place := fields[field], list | tuple) else dict(fields)
        for fields in written
    ]
