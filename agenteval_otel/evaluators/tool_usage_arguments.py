"""What the arguments of a tool call have to be: predicates and a JSON Schema for files, functions for programs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from pydantic import (
    BaseModel,
    SerializationInfo,
    TypeAdapter,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_serializer,
    field_validator,
)
from pydantic.json_schema import SkipJsonSchema

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.imports import importable, imported, qualified_name
from agenteval_otel.evaluators.json_schema import Definition, compiled
from agenteval_otel.evaluators.tool_usage_calls import looks_like_json, parsed_arguments
from agenteval_otel.evaluators.tool_usage_predicates import SETTINGS, Predicate, argument_at
from agenteval_otel.masking import is_secret, mask

__all__ = ["ArgumentTerms", "answer_of", "synchronous", "with_functions", "with_names"]


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
        given = _read(value) if isinstance(value, str) else value
        if isinstance(given, Mapping):
            return _PREDICATES.validate_python(dict(given), context=info.context)
        return synchronous(given, "arguments")

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
    def is_quick(self) -> bool:
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
    said = {name: predicate.model_dump(mode="json", fallback=repr) for name, predicate in predicates.items()}
    if not secrets:
        said = {
            name: {
                key: mask(value, name if is_secret(name) and key in _VALUES else "") for key, value in predicate.items()
            } for name, predicate in said.items()
        }  # fmt: skip
    return json.dumps(said, ensure_ascii=False)  # in order: what is told is the first that is wrong


def _read(text: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError("expected a mapping of arguments to what they have to be, or JSON text of one")
    return found


def synchronous(value: Any, of: str) -> Any:
    """The function; raises ValueError for what is none, or would have to be awaited."""
    if not callable(value):
        raise ValueError(f"expected a function of the {of}, or a mapping of arguments to what they have to be")
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None)):  # noqa: B004
        raise ValueError("expected a function that need not be awaited")
    return value


def answer_of(answer: Any) -> str | None:
    """A function's answer as a problem; None when the arguments are valid.

    Raises:
        EvaluationError: (``invalid_check``) The answer is none.
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
