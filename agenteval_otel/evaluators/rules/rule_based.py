"""RuleBased: fixed rules on text (length, pattern, substrings, keywords) and on JSON (whether it is, its schema)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field, SerializeAsAny, field_validator

from agenteval_otel.components import ListOf, load_each, resolve
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.rules.base import InvalidCheck, RuleCheck, RulesEvaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, Score, ScoreValue
from agenteval_otel.runtime.masking import message_of

_VALUES: dict[str, tuple[ScoreValue, ScoreValue]] = {"numeric": (0, 1), "likert5": (1, 5), "string": ("fail", "pass")}


class RuleBased(RulesEvaluator, type="RuleBased"):
    """Passes or fails criteria by fixed rules; several rules may decide one criterion, each with its own result.

    A passed rule scores true on ``binary``, ``pass/fail``, declared ranges and custom scales, 1 on ``numeric``, 5 on
    ``likert5`` and ``"pass"`` on the scale ``string``; a failed one false, 0, 1 and ``"fail"``. A rule that cannot be
    applied (no text, a pattern that takes too long) gives a failed result; the others go on.

    Attributes:
        rules: At least one: instances such as ``Length(criterion="short_enough", max=80)``, or mappings such as
            ``{criterion: short_enough, type: length, max: 80}``. Rules for criteria that are not scored are ignored.
    """

    rules: ListOf[SerializeAsAny[RuleCheck]] = Field(json_schema_extra={"minItems": 1})

    if TYPE_CHECKING:

        def __init__(
            self, *, rules: Sequence[RuleCheck | Mapping[str, Any]], execution: Execution | None = None,
            timeout_s: float | None = None, sample_rate: float | None = None, tags: Sequence[str] = (),
        ) -> None: ...  # fmt: skip

    @field_validator("rules", mode="before")
    @classmethod
    def _load_rules(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list of rules")
        return load_each(_load_rule, value, path="rules")

    def score_rule(self, rule: RuleCheck, subject: EvaluationInput, criterion: EvaluationCriteria) -> Score:
        try:
            failure = rule.check_input(subject)
        except (EvaluationError, EvaluationSkipped):
            raise
        except Exception as error:  # of a user's check, or of a mapping in the input
            raise EvaluationError(message_of(error), error_type=type(error).__name__) from None
        outcome = "passed" if failure is None else f"failed ({failure.detail})" if failure.detail else "failed"
        return Score(
            value=_value_on(criterion, passed=failure is None),
            passed=failure is None,
            reason_code=None if failure is None else failure.reason_code,
            reasoning=f"rule {rule.type} on {rule.source_text_field}: {outcome}",
        )

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        return _value_on(criterion, passed=False)


def _load_rule(rule: Any, path: str) -> RuleCheck:
    if isinstance(rule, Mapping) and rule.get("type") == InvalidCheck.__name__:
        return InvalidCheck.load({name: value for name, value in rule.items() if name != "type"}, path=path)
    return resolve(RuleCheck, rule, path=path)


def _value_on(criterion: EvaluationCriteria, *, passed: bool) -> ScoreValue:
    if criterion.minimum is not None and criterion.maximum is not None:
        return passed
    return _VALUES.get(criterion.scale, (False, True))[passed]
