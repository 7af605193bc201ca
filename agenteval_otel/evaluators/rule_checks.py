"""The checks of `RuleBased` and the rules that carry them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from agenteval_otel.errors import EvaluationError
from agenteval_otel.patterns import JsPattern, check_flags, compile_pattern

__all__ = [
    "IncludesCheck", "JsonCheck", "LengthCheck", "ReasonCode", "RegexCheck", "Rule", "Verdict", "WrongCheck",
]  # fmt: skip

ReasonCode = Literal[
    "too_short", "too_long", "pattern_missing", "forbidden_pattern", "missing_keyword", "forbidden_keyword",
    "invalid_json",
]  # fmt: skip
Verdict = ReasonCode | None
"""Why a rule fails; None when it passes."""


class _RuleModel(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True,
        ignored_types=(cached_property,),
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _originals_ignore_unknown_fields(cls, data: Any, info: ValidationInfo) -> Any:
        if not _is_original(info) or not isinstance(data, Mapping):
            return data
        known = {name for field in cls.model_fields for name in (field, to_camel(field))}
        return {key: value for key, value in data.items() if key in known}


class LengthCheck(_RuleModel):
    """Bounds on the length in UTF-16 units, inclusive, nothing trimmed; without bounds every text passes."""

    type: Literal["length"] = "length"
    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _bounds_leave_room(self, info: ValidationInfo) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max and not _is_original(info):
            raise ValueError(f"no text is at least {self.min:g} and at most {self.max:g} long")
        return self

    def verdict(self, value: Any, text: str, *, limit_s: float) -> Verdict:
        """Judge the text."""
        length = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
        if self.min is not None and length < self.min:
            return "too_short"
        return "too_long" if self.max is not None and length > self.max else None


class RegexCheck(_RuleModel):
    """A JavaScript pattern that must occur (``match``) or must not (``no_match``, also when nothing is said)."""

    type: Literal["regex"] = "regex"
    flags: str = ""
    pattern: str
    expected_outcome: Literal["match", "no_match"] = "no_match"

    @field_validator("flags", mode="before")
    @classmethod
    def _flags_are_known(cls, value: Any) -> Any:
        if value is None:
            return ""
        if isinstance(value, str):
            check_flags(value)
        return value

    @field_validator("pattern")
    @classmethod
    def _pattern_compiles(cls, value: str, info: ValidationInfo) -> str:
        if "flags" in info.data:
            compile_pattern(value, info.data["flags"])
        return value

    @field_validator("expected_outcome", mode="before")
    @classmethod
    def _original_outcome(cls, value: Any, info: ValidationInfo) -> Any:
        return "no_match" if _is_original(info) and value != "match" else value

    @cached_property
    def _compiled(self) -> JsPattern:
        return compile_pattern(self.pattern, self.flags)

    @property
    def is_linear(self) -> bool:
        """Whether no text can make the search take long."""
        return self._compiled.linear is not None

    def verdict(self, value: Any, text: str, *, limit_s: float) -> Verdict:
        """Search the text for at most `limit_s` seconds; raises TimeoutError beyond."""
        found = self._compiled.found(text, limit_s=limit_s)
        if self.expected_outcome == "match":
            return None if found else "pattern_missing"
        return "forbidden_pattern" if found else None


class IncludesCheck(_RuleModel):
    """Substrings, not words, of which all, any or none must occur; an empty one always occurs."""

    type: Literal["includes"] = "includes"
    keywords: tuple[str, ...]
    case_sensitive: bool = False
    expected_outcome: Literal["all", "any", "none"] = "all"

    @cached_property
    def _wanted(self) -> tuple[str, ...]:
        return self.keywords if self.case_sensitive else tuple(keyword.lower() for keyword in self.keywords)

    def verdict(self, value: Any, text: str, *, limit_s: float) -> Verdict:
        """Judge the text."""
        text = text if self.case_sensitive else text.lower()
        found = (keyword in text for keyword in self._wanted)
        if self.expected_outcome == "none":
            return "forbidden_keyword" if any(found) else None
        passed = all(found) if self.expected_outcome == "all" else any(found)
        return None if passed else "missing_keyword"


class JsonCheck(_RuleModel):
    """Strict JSON: no NaN, no byte order mark, no trailing comma; a value that is not text passes as it stands."""

    type: Literal["json_parse"] = "json_parse"

    def verdict(self, value: Any, text: str | None, *, limit_s: float) -> Verdict:
        """Judge the value; a missing one is no JSON."""
        if not isinstance(value, str):
            return "invalid_json" if value is None else None
        try:
            # Numbers are only looked at: Python would refuse whole numbers beyond some thousand digits.
            json.loads(value, parse_constant=_refuse, parse_int=len, parse_float=len)
        except RecursionError:
            raise EvaluationError("JSON nested too deeply to be checked", error_type="too_deep") from None
        except ValueError:
            return "invalid_json"
        return None


class WrongCheck(_RuleModel):
    """A rule of an original configuration that cannot be run: kept as `given`, so that it shows in every evaluation.

    With a `problem` it becomes a failed result, as in the original; without one the rule just never passes.
    """

    model_config = ConfigDict(json_schema_extra={"x-unwritable": True})  # no file says it

    type: Literal["wrong"] = "wrong"
    given: Any = None
    problem: str | None = None

    def verdict(self, value: Any, text: str, *, limit_s: float) -> Verdict:
        """Fail."""
        if self.problem is None:
            return "missing_keyword"
        raise EvaluationError(self.problem, error_type="invalid_rule")


Check = LengthCheck | RegexCheck | IncludesCheck | JsonCheck | WrongCheck
_CHECKS: dict[str, type[_RuleModel]] = {
    "length": LengthCheck, "regex": RegexCheck, "includes": IncludesCheck, "json_parse": JsonCheck, "wrong": WrongCheck,
}  # fmt: skip


class Rule(_RuleModel):
    """One rule: the criterion that it decides, the check, and where its text comes from (see `text_at`)."""

    criterion_name: str = Field(min_length=1, pattern=r"\S")
    config: Annotated[Check, Field(discriminator="type")]
    source_text_field: str = "response"

    @field_validator("config", mode="wrap")
    @classmethod
    def _check_by_type(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """Choose the check by hand: the union's own way would put its type into the path of an error."""
        if isinstance(value, tuple(_CHECKS.values())):
            return value
        if not _is_original(info):
            return _check_of(value, info.context)
        if _is_never_passing(value):
            return WrongCheck(given=dict(value))
        try:
            return _check_of(value, info.context)
        except ValidationError as error:
            problem = "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors(include_url=False))
        except ValueError as error:
            problem = str(error)
        return WrongCheck(given=value, problem=problem)


def _is_original(info: ValidationInfo) -> bool:
    return bool(info.context and info.context.get("original"))


def _check_of(value: Any, context: Any) -> _RuleModel:
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping with 'type'")
    kind = _CHECKS.get(value["type"]) if isinstance(value.get("type"), str) else None
    if kind is None:
        known = ", ".join(name for name in _CHECKS if name != "wrong")
        raise ValueError(f"unknown rule type {value.get('type')!r}; known: {known}")
    return kind.model_validate(dict(value), context=context)


def _is_never_passing(value: Any) -> bool:
    """The original takes an `includes` rule with an unknown outcome, and fails it without an error."""
    if not isinstance(value, Mapping) or value.get("type") != "includes":
        return False
    outcome = value.get("expectedOutcome", value.get("expected_outcome"))
    return isinstance(value.get("keywords"), list | tuple) and outcome not in ("all", "any", "none")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
