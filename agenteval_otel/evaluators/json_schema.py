"""JSON Schema: a schema checked once, and then what is wrong with a value. Nothing is ever fetched."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from agenteval_otel.errors import ConfigurationError, EvaluationError

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

# Beyond its depth the library would stop looking, without an error.
_MAX_DEPTH = 200
_MAX_VALUES = 1_000_000
_MAX_PROBLEMS = 8
_MAX_CHARACTERS = 200
_REGEX_BYTES = 1024 * 1024


def compiled(definition: object) -> Callable[[Any], list[str]]:
    """Compile a JSON Schema to a function from a value to its problems.

    The function returns at most eight short texts, and none if the value is valid. The texts have
    paths, keywords and unknown properties, but no values. The function is thread-safe. It raises
    `EvaluationError` (``too_deep``, ``too_large``, ``invalid_value``) without a verdict.

    The draft is the one that ``$schema`` names, else 2020-12. ``format`` is an annotation.
    References may point into the schema or the drafts' own.

    Raises:
        ConfigurationError: It is no schema, refers to something outside of it, has a pattern that
            cannot be searched in linear time (look-around, references to groups), or the extra is
            missing.
    """
    try:
        import jsonschema_rs as library
    except ImportError:
        raise ConfigurationError(
            'JSON Schema needs the extra jsonschema: pip install "agenteval-otel[jsonschema]"'
        ) from None
    if not isinstance(definition, dict | bool):
        raise ConfigurationError(
            f"expected a JSON Schema (a mapping, true or false), found {type(definition).__name__}"
        )
    try:
        validator = library.validator_for(
            definition,
            offline=True,
            mask="the value",
            pattern_options=library.RegexOptions(
                size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_BYTES
            ),
        )
    except library.ValidationError as error:
        problem = _problem(error)
        if problem.endswith('is not a "regex"'):
            problem += (
                " that can be searched in linear time (no look-around, no references to groups)"
            )
        raise ConfigurationError(f"not a JSON Schema: {problem}") from None
    except ValueError as error:
        raise ConfigurationError(f"not a JSON Schema: {_cut(str(error))}") from None
    return lambda value: _problems(validator, value)


def _as_text(value: object) -> str:
    """Return the schema as JSON text, once it compiles."""
    try:
        definition = json.loads(value) if isinstance(value, str) else value
        compiled(definition)
        return json.dumps(definition, ensure_ascii=False, sort_keys=True)
    except json.JSONDecodeError as error:
        raise ValueError(f"not a JSON Schema: not JSON: {error.msg}") from None
    except (ConfigurationError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


Definition = Annotated[
    str,
    BeforeValidator(_as_text),
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "boolean"}, {"type": "string"}]}),
]
"""Type of a field that holds a schema: a mapping, true, false or JSON text, checked at load and
kept as JSON text.

Text, because a dump masks deep values and those that are named like a secret: the schema would be
lost.
"""


def _problems(validator: Validator, value: object) -> list[str]:
    _check(value)
    try:
        try:
            errors = list(islice(validator.iter_errors(value), _MAX_PROBLEMS))
        except ValueError:  # a lone surrogate, a key that is no text
            as_json = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
            errors = list(islice(validator.iter_errors(as_json), _MAX_PROBLEMS))
    except (TypeError, ValueError):  # an object
        raise EvaluationError(
            "holds something that JSON does not have", error_type="invalid_value"
        ) from None
    return [_problem(error) for error in errors]


def _check(value: object) -> None:
    """Refuse NaN, which the library reads as null, and infinities.

    Refuse also too many values, and depths that the library would not check.
    """
    level = [value]
    size = 0
    for _ in range(_MAX_DEPTH):
        size += len(level)
        if size > _MAX_VALUES:
            raise EvaluationError(f"more than {_MAX_VALUES} values", error_type="too_large")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list | tuple):
                inner.extend(item)
            elif isinstance(item, float) and not math.isfinite(item):
                raise EvaluationError(
                    "a number that JSON does not have", error_type="invalid_value"
                )
        if not inner:
            return
        level = inner
    raise EvaluationError(f"nested deeper than {_MAX_DEPTH} levels", error_type="too_deep")


def _problem(error: ValidationError) -> str:
    where = "".join(f"/{part}" for part in error.instance_path)
    return _cut(f"{where}: {error.message}" if where else str(error.message))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
