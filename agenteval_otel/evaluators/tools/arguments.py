"""Checks of the arguments of a tool call: predicates, a JSON Schema, and, in a program, functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Literal

from pydantic import (
    BaseModel,
    Field,
    SerializationInfo,
    TypeAdapter,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_serializer,
    field_validator,
)
from pydantic.json_schema import SkipJsonSchema

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import qualified_name
from agenteval_otel.evaluators.built_in import NESTED
from agenteval_otel.evaluators.func import is_async
from agenteval_otel.evaluators.json_schema import Definition, compiled
from agenteval_otel.evaluators.tools.calls import looks_like_json, parsed_arguments
from agenteval_otel.runtime.masking import is_secret, mask
from agenteval_otel.runtime.patterns import check_pattern, compile_pattern

JsonType = Literal["string", "number", "integer", "boolean", "array", "object", "null"]
ABSENT: Final = object()
_INDEX = re.compile(r"[0-9]{1,9}")
_TYPES: dict[str, Any] = {
    "string": str,
    "number": int | float,
    "boolean": bool,
    "array": list | tuple,
    "object": Mapping,
    "null": type(None),
}


class Predicate(BaseModel):
    """Holds conditions on one argument. All of them must hold. A missing argument fails.

    Attributes:
        present: False: the argument must be absent. True alone only requires that it is present.
        optional: Whether a missing argument passes.
        type: Its JSON type, or a list of allowed types. ``integer`` accepts 2.0, ``number`` rejects
            booleans.
        equals: The exact value. 1 and 1.0 are equal, true is not 1.
        one_of: The allowed values.
        min: The smallest number allowed.
        max: The largest number allowed.
        min_length: The minimum length of a text, a list or an object.
        max_length: The maximum length of a text, a list or an object.
        contains: A substring that a text must have, or an item that a list must have.
        pattern: A regular expression (as in `RuleBased`) that must occur in the text.
        not_empty: Not null, not blank as text, not empty as a list or an object.
    """

    model_config = NESTED

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

    _pattern_compiles = field_validator("pattern")(check_pattern)

    def problem(self, value: object) -> str | None:
        """Return why the value of the argument fails, or None if it passes."""
        if value is ABSENT:
            return None if self.optional or not self.present else "is missing"
        if not self.present:
            return "must not be given"
        return next(self._problems(value), None)

    def _problems(self, value: Any) -> Iterator[str]:
        """Yield what is wrong with a value that is there, the plainest problem first."""
        types = (self.type,) if isinstance(self.type, str) else self.type
        if types and not any(_is_type(value, kind) for kind in types):
            yield f"is no {' or '.join(types)}"
        # None is a value that can be expected: only what was set counts.
        if "equals" in self.model_fields_set and not is_same(value, self.equals):
            yield "is not the expected value"
        if self.one_of and not any(is_same(value, choice) for choice in self.one_of):
            yield "is none of the expected values"
        if "contains" in self.model_fields_set and not _contains(value, self.contains):
            yield "does not contain what is expected"
        if self.pattern is not None and not _matches(value, self.pattern):
            yield "does not match the pattern"
        if self.not_empty and _is_empty(value):
            yield "is empty"
        number = value if _is_type(value, "number") else None
        too_small = "is too small or no number"
        too_large = "is too large or no number"
        yield from _outside(number, self.min, self.max, too_small, too_large)
        length = len(value) if isinstance(value, str | list | tuple | Mapping) else None
        too_short = "is too short or has no length"
        too_long = "is too long or has no length"
        yield from _outside(length, self.min_length, self.max_length, too_short, too_long)


def argument_at(value: object, name: str) -> Any:
    """Return the argument of that name, or at a dotted path (``items.0.id``) inside the arguments.

    Return `ABSENT` if there is none.
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


def _is_type(value: Any, kind: str) -> bool:
    if kind == "integer":
        return _is_type(value, "number") and bool(value == value // 1)
    return isinstance(value, _TYPES[kind]) and not (kind == "number" and isinstance(value, bool))


def is_same(first: object, other: object) -> bool:
    """Tell whether two JSON values are equal. 1 is equal to 1.0, and true to neither."""
    if isinstance(first, bool) or isinstance(other, bool):
        return first is other
    if isinstance(first, Mapping) and isinstance(other, Mapping):
        return first.keys() == other.keys() and all(
            is_same(first[key], other[key]) for key in first
        )
    if isinstance(first, list | tuple) and isinstance(other, list | tuple):
        return len(first) == len(other) and all(map(is_same, first, other))
    return bool(first == other)


def _contains(value: object, wanted: object) -> bool:
    if isinstance(value, str):
        return isinstance(wanted, str) and wanted in value
    return isinstance(value, list | tuple) and any(is_same(item, wanted) for item in value)


def _matches(value: object, pattern: str) -> bool:
    try:
        return isinstance(value, str) and compile_pattern(pattern).occurs_in(value)
    except TimeoutError:
        raise EvaluationError(
            "the pattern takes too long on the argument", error_type="timeout"
        ) from None


def _outside(
    number: float | None, least: float | None, most: float | None, too_small: str, too_large: str
) -> Iterator[str]:
    """Yield what is wrong with a number by its bounds. None and NaN are in no bounds."""
    if least is not None and (number is None or not number >= least):
        yield too_small
    if most is not None and (number is None or not number <= most):
        yield too_large


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value in ([], (), {})


class ArgumentTerms(BaseModel):
    """Holds conditions on a call's arguments. All of them must hold.

    Attributes:
        argument_checks: What each argument has to be, by its name (``user.city`` looks inside an
            object). In a program it may be a function of the arguments instead, which gives
            ``{is_valid, reason}``, a boolean or (boolean, reason).
        arguments_schema: A JSON Schema of all arguments (the extra ``jsonschema``).
    """

    model_config = NESTED

    argument_checks: dict[str, Predicate] | SkipJsonSchema[Callable[[Any], Any]] | None = None
    arguments_schema: Definition | None = None

    @field_validator("argument_checks", mode="wrap")
    @classmethod
    def _function_or_predicates(
        cls, value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        # Chosen by hand: the union's own way would put its types into the path of an error.
        checks = _read(value) if isinstance(value, str) else value
        if isinstance(checks, Mapping):
            return _PREDICATES.validate_python(dict(checks), context=info.context)
        if checks is not None and not callable(checks):
            raise ValueError(
                "expected a function of the arguments, or a mapping of arguments to what they have to be"
            )
        if is_async(checks):
            raise ValueError("expected a function that need not be awaited")
        return checks

    @field_serializer("argument_checks")
    def _as_text(
        self, value: dict[str, Predicate] | Callable[[Any], Any] | None, info: SerializationInfo
    ) -> Any:
        # As text: a dump masks deep values and those that are named like a secret, arguments too.
        if callable(value):
            return f"function {qualified_name(value)}" if info.mode == "json" else value
        if value is None:
            return None
        with_secrets = bool((info.context or {}).get("secrets"))
        return _written(value, secrets=with_secrets)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            is_mapping = name == "argument_checks" and isinstance(value, Mapping)
            yield name, _written(value, secrets=False) if is_mapping else value

    @cached_property
    def _schema_problems(self) -> Callable[[Any], list[str]]:
        return compiled(json.loads(self.arguments_schema or "true"))

    @property
    def is_empty(self) -> bool:
        return self.argument_checks is None and self.arguments_schema is None

    @property
    def has_function(self) -> bool:
        return callable(self.argument_checks)

    @property
    def is_fast(self) -> bool:
        """Tell whether no arguments can make the checks take long."""
        if callable(self.argument_checks) or self.arguments_schema is not None:
            return False
        patterns = (predicate.pattern for predicate in (self.argument_checks or {}).values())
        return all(pattern is None or compile_pattern(pattern).is_linear for pattern in patterns)

    def problem(self, arguments: object) -> str | None:
        """Return what is wrong with a call's arguments, a value or JSON text, or None.

        Raises what a function raises.
        """
        value = parsed_arguments(arguments)
        if isinstance(value, str) and looks_like_json(value):  # else it would have been read
            return "they are no JSON"
        if self.arguments_schema is not None:
            problems = self._schema_problems(value)
            if problems:
                return problems[0]
        if callable(self.argument_checks):
            return answer_of(self.argument_checks(value))
        for name, predicate in (self.argument_checks or {}).items():
            problem = predicate.problem(argument_at(value, name))
            if problem:
                return f"{name} {problem}"
        return None


_PREDICATES = TypeAdapter(dict[str, Predicate])
# Of an argument that is named like a secret, these conditions may be the secret.
_VALUES = frozenset({"equals", "one_of", "contains"})


def _written(predicates: Mapping[str, Predicate], *, secrets: bool) -> str:
    # Only set fields: `equals` set to null is a condition, `equals` left out is not.
    written = {
        name: predicate.model_dump(mode="json", exclude_unset=True, fallback=repr)
        for name, predicate in predicates.items()
    }
    if not secrets:
        for name, predicate in written.items():
            for condition, value in predicate.items():
                may_be_secret = is_secret(name) and condition in _VALUES
                predicate[condition] = mask(value, name if may_be_secret else "")
    return json.dumps(written, ensure_ascii=False)


def _read(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError(
            "expected a mapping of arguments to what they have to be, or JSON text of one"
        )
    return value


def answer_of(answer: object) -> str | None:
    """Return a function's answer as a problem, or None if the arguments are valid."""
    reason: object = None
    if isinstance(answer, Mapping):
        reason = answer.get("reason")
        answer = answer.get("isValid", answer.get("is_valid"))
    elif isinstance(answer, tuple) and len(answer) == 2:
        answer, reason = answer
    if not isinstance(answer, bool):
        raise EvaluationError(
            f"expected {{is_valid, reason}}, a boolean or (boolean, reason) from the function, "
            f"found {type(answer).__name__}",
            error_type="invalid_check",
        )
    return None if answer else str(reason or "refused by the function")
