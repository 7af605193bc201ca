"""A rule: the criterion that it decides, its check, and where the text comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from agenteval_otel.components import choices
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.fields import TextField
from agenteval_otel.evaluators.rule_checks.base import Broken, RuleModel, Verdict, is_original
from agenteval_otel.evaluators.rule_checks.structure import JsonCheck, JsonSchemaCheck
from agenteval_otel.evaluators.rule_checks.text import IncludesCheck, KeywordCountCheck, LengthCheck, RegexCheck

__all__ = ["Check", "Rule", "WrongCheck"]


class WrongCheck(RuleModel):
    """A rule of an original configuration that cannot be run: kept as `given`, so that it shows in every evaluation.

    With a `problem` it becomes a failed result, as in the original; without one the rule just never passes.
    """

    model_config = ConfigDict(json_schema_extra={"x-unwritable": True})  # no file says it

    type: Literal["wrong"] = "wrong"
    given: Any = None
    problem: str | None = None

    def verdict(self, value: Any, text: str | None, *, limit_s: float) -> Verdict:
        """Fail."""
        if self.problem is None:
            return Broken("missing_keyword")
        raise EvaluationError(self.problem, error_type="invalid_rule")


Check = LengthCheck | RegexCheck | IncludesCheck | KeywordCountCheck | JsonCheck | JsonSchemaCheck | WrongCheck
_CHECKS: dict[str, type[RuleModel]] = {
    "length": LengthCheck, "regex": RegexCheck, "includes": IncludesCheck, "keyword_count": KeywordCountCheck,
    "json_parse": JsonCheck, "json_schema": JsonSchemaCheck, "wrong": WrongCheck,
}  # fmt: skip
_OURS = ("keyword_count", "json_schema")


class Rule(RuleModel):
    """One rule: the criterion that it decides, the check, and where its text comes from (see `text_at`).

    The originals' documents write the place into the check, as ``sourceField``; that is understood too.
    """

    criterion_name: str = Field(min_length=1, pattern=r"\S")
    config: Annotated[Check, Field(discriminator="type")]
    source_text_field: TextField = "response"

    @model_validator(mode="before")
    @classmethod
    def _place_in_the_check(cls, data: Any) -> Any:
        check = data.get("config") if isinstance(data, Mapping) else None
        if not isinstance(check, Mapping) or not {"sourceField", "source_field"} & check.keys():
            return data
        rest = dict(check)
        place = rest.pop("sourceField", rest.pop("source_field", None))
        if not {"sourceTextField", "source_text_field"} & data.keys():
            return {**data, "config": rest, "source_text_field": place}
        return {**data, "config": rest}

    @property
    def is_quick(self) -> bool:
        return self.config.is_quick

    @field_validator("config", mode="wrap")
    @classmethod
    def _check_by_type(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """Choose the check by hand: the union's own way would put its type into the path of an error."""
        if isinstance(value, tuple(_CHECKS.values())):
            return value
        # What the originals do not know has no leniency of theirs.
        if not is_original(info) or (isinstance(value, Mapping) and value.get("type") in _OURS):
            return _check_of(value, None)
        if _is_never_passing(value):
            return WrongCheck(given=dict(value))
        try:
            return _check_of(value, info.context)
        except ValidationError as error:
            problem = "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors(include_url=False))
        except ValueError as error:
            problem = str(error)
        return WrongCheck(given=value, problem=problem)


def _check_of(value: Any, context: Any) -> RuleModel:
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping with 'type'")
    kind = _CHECKS.get(value["type"]) if isinstance(value.get("type"), str) else None
    if kind is None:
        known = [name for name in _CHECKS if name != "wrong"]
        raise ValueError(f"unknown rule type {value.get('type')!r}{choices(value.get('type'), known)}")
    return kind.model_validate(dict(value), context=context)


def _is_never_passing(value: Any) -> bool:
    """The original takes an `includes` rule with an unknown outcome, and fails it without an error."""
    if not isinstance(value, Mapping) or value.get("type") != "includes":
        return False
    outcome = value.get("expectedOutcome", value.get("expected_outcome"))
    return isinstance(value.get("keywords"), list | tuple) and outcome not in ("all", "any", "none")
