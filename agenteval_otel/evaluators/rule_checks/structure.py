"""Checks of structure: whether it is JSON, and whether that is as a JSON Schema says."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal, NoReturn, Self

from pydantic import model_validator

from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators.files import json_of
from agenteval_otel.evaluators.json_schema import Definition, compiled
from agenteval_otel.evaluators.rule_checks.base import Broken, RuleModel, Verdict

__all__ = ["JsonCheck", "JsonSchemaCheck"]

_MAX_FILE_BYTES = 1024 * 1024


class JsonCheck(RuleModel):
    """Strict JSON: no NaN, no byte order mark, no trailing comma; a value that is not text passes as it stands."""

    type: Literal["json_parse"] = "json_parse"

    def verdict(self, value: Any, text: str | None, *, limit_s: float) -> Verdict:
        """Judge the value; a missing one is no JSON."""
        if not isinstance(value, str):
            return Broken("invalid_json") if value is None else None
        try:
            # Numbers are only looked at: Python would refuse whole numbers beyond some thousand digits.
            json.loads(value, parse_constant=_refuse, parse_int=len, parse_float=len)
        except RecursionError:
            raise EvaluationError("JSON nested too deeply to be checked", error_type="too_deep") from None
        except ValueError:
            return Broken("invalid_json")
        return None


class JsonSchemaCheck(RuleModel):
    """JSON that a JSON Schema allows: text is parsed, any other value is taken as it stands. See `json_schema`.

    Exactly one of the two says the schema; a file is read once, when the rule is loaded, and its content takes its
    place. The draft is 2020-12 unless ``$schema`` names another.
    """

    type: Literal["json_schema"] = "json_schema"
    definition: Definition | None = None
    definition_file: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _file_is_read(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        rest = dict(data)
        path = rest.pop("definition_file", rest.pop("definitionFile", None))
        if not isinstance(path, str):
            return data
        if rest.get("definition") is not None:
            raise ValueError("expected definition or definition_file, found both")
        try:
            found = json_of(path, max_bytes=_MAX_FILE_BYTES)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return {**rest, "definition": json.dumps(found, sort_keys=True)}

    @model_validator(mode="after")
    def _schema_is_given(self) -> Self:
        if self.definition is None:
            raise ValueError("expected definition (a JSON Schema) or definition_file")
        return self

    @property
    def is_quick(self) -> bool:
        """No: how long it takes is in the schema, and what a schema cannot follow may end its process."""
        return False

    @cached_property
    def _problems_of(self) -> Callable[[Any], list[str]]:
        return compiled(json.loads(self.definition or "true"))

    def verdict(self, value: Any, text: str | None, *, limit_s: float) -> Verdict:
        """Judge the value, or the text where there is one."""
        if text is not None:
            try:
                value = _parsed(text)
            except json.JSONDecodeError:
                return Broken("invalid_json", "not JSON")
        problems = self._problems_of(value)
        return Broken("schema_mismatch", "; ".join(problems)) if problems else None


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
