"""Checks of structure: whether a text or value is JSON, and whether it fits a JSON Schema."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Self

from pydantic import model_validator

from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators.files import json_of
from agenteval_otel.evaluators.json_schema import Definition, compiled
from agenteval_otel.evaluators.rules.base import RuleCheck, RuleFailure, RuleResult
from agenteval_otel.models import EvaluationInput

__all__ = ["Json", "JsonSchema"]

_MAX_FILE_BYTES = 1024 * 1024


class Json(RuleCheck, type="json_parse"):
    """Strict JSON: no NaN, no byte order mark, no trailing comma; a value that is not text passes."""

    reason_codes: ClassVar[tuple[str, ...]] = ("invalid_json",)

    @property
    def is_fast(self) -> bool:
        return True

    def check_input(self, evaluation_input: EvaluationInput) -> RuleResult:
        """Check the value; a missing response is not JSON, any other missing value is a failure."""
        value = evaluation_input.value_at(self.source_text_field)
        if isinstance(value, str):
            return self.check(value)
        if value is None and self.source_text_field != "response":
            raise EvaluationError(f"nothing at {self.source_text_field}", error_type="missing_text")
        return RuleFailure("invalid_json") if value is None else None

    def check(self, text: str) -> RuleResult:
        """Parse the text."""
        try:
            # Numbers are not converted: Python would refuse whole numbers beyond some thousand digits.
            json.loads(text, parse_constant=_refuse, parse_int=len, parse_float=len)
        except RecursionError:
            raise EvaluationError("JSON nested too deeply to be checked", error_type="too_deep") from None
        except ValueError:
            return RuleFailure("invalid_json")
        return None


class JsonSchema(RuleCheck, type="json_schema"):
    """JSON that fits a JSON Schema: text is parsed, any other value is taken as it is.

    Exactly one of the two fields is required. The draft is 2020-12 unless ``$schema`` names another.

    Attributes:
        definition: The schema: a mapping, true, false or JSON text.
        definition_file: A file with the schema, of at most 1 MiB; read once at load, and replaced by its content.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("invalid_json", "schema_mismatch")

    definition: Definition | None = None
    definition_file: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_file(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        rest = dict(data)
        path = rest.pop("definition_file", rest.pop("definitionFile", None))
        if not isinstance(path, str):
            return data
        if rest.get("definition") is not None:
            raise ValueError("expected definition or definition_file, found both")
        try:
            schema = json_of(path, max_bytes=_MAX_FILE_BYTES)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return {**rest, "definition": json.dumps(schema, sort_keys=True)}

    @model_validator(mode="after")
    def _has_schema(self) -> Self:
        if self.definition is None:
            raise ValueError("expected definition (a JSON Schema) or definition_file")
        return self

    @cached_property
    def _problems_of(self) -> Callable[[Any], list[str]]:
        return compiled(json.loads(self.definition or "true"))

    def check_input(self, evaluation_input: EvaluationInput) -> RuleResult:
        """Check the text, or the value where there is no text."""
        if evaluation_input.text_at(self.source_text_field) is None:
            value = evaluation_input.value_at(self.source_text_field)
            if value is not None:
                return self._check_value(value)
        return super().check_input(evaluation_input)

    def check(self, text: str) -> RuleResult:
        """Parse and check the text."""
        try:
            return self._check_value(_parsed(text))
        except json.JSONDecodeError:
            return RuleFailure("invalid_json", "not JSON")

    def _check_value(self, value: Any) -> RuleResult:
        problems = self._problems_of(value)
        return RuleFailure("schema_mismatch", "; ".join(problems)) if problems else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise EvaluationError("JSON nested too deeply to be checked", error_type="too_deep") from None
    except json.JSONDecodeError:
        raise
    except ValueError:  # Python's limit of some thousand digits
        raise _too_large() from None


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _too_large()
    return number


def _too_large() -> EvaluationError:
    return EvaluationError("holds a number too large to be checked", error_type="too_large")


def _refuse(constant: str) -> NoReturn:
    raise json.JSONDecodeError(f"{constant} is not JSON", constant, 0)
