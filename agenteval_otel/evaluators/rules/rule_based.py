"""RuleBased: fixed rules on text (length, pattern, substrings, keywords) and on JSON (whether it is, its schema)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, SerializeAsAny, field_validator

from agenteval_otel.components import ListOf, load_each, resolve
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import failure_of, find_criterion, result_of
from agenteval_otel.evaluators.imports import MAIN, importable, imported
from agenteval_otel.evaluators.rules.base import InvalidCheck, RuleCheck, RuleResult, RulesEvaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, Score, ScoreValue

__all__ = ["RuleBased"]

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

        def __init__(self, *, rules: Sequence[RuleCheck | Mapping[str, Any]], **fields: Any) -> None: ...

    @field_validator("rules", mode="before")
    @classmethod
    def _load_rules(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list of rules")
        return load_each(_load_rule, value, path="rules")

    def to_child(self) -> dict[str, Any]:
        """Its configuration, and where its checks are, which the worker process imports."""
        places = {importable(type(rule)) for rule in self.rules}
        if any(module == MAIN for module, _ in places):
            raise LookupError("a check of its rules is defined in the program's own file")
        return {**super().to_child(), "checks": sorted(places)}

    @classmethod
    def from_child(cls, fields: Mapping[str, Any]) -> Self:
        """The evaluator that `to_child` wrote down."""
        for place in fields["checks"]:
            imported(*place)
        return super().from_child({name: value for name, value in fields.items() if name != "checks"})

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        """One result for each rule whose criterion is scored, in rule order."""
        results = []
        for rule in self.rules:
            criterion = find_criterion(criteria, rule.criterion)
            if criterion is not None:
                results.append(self._apply(rule, criterion, evaluation_input))
        return results

    def _apply(
        self, rule: RuleCheck, criterion: EvaluationCriteria, evaluation_input: EvaluationInput
    ) -> EvaluationResult:
        try:
            result = rule.check_input(evaluation_input)
        except EvaluationError as failure:
            error, error_type = str(failure), failure.error_type
        except Exception as failure:  # of a user's check, or of a mapping in the input
            error, error_type = f"{type(failure).__name__}: {failure}", type(failure).__name__
        else:
            return result_of(self, criterion, _score_of(rule, result, criterion))
        filler = _value_on(criterion, passed=False)
        return failure_of(self, criterion.name, error, error_type=error_type, filler=filler)


def _load_rule(rule: Any, path: str) -> RuleCheck:
    if isinstance(rule, Mapping) and rule.get("type") == InvalidCheck.__name__:
        return InvalidCheck.load({name: value for name, value in rule.items() if name != "type"}, path=path)
    return resolve(RuleCheck, rule, path=path)


def _score_of(rule: RuleCheck, result: RuleResult, criterion: EvaluationCriteria) -> Score:
    passed = result is None
    outcome = "passed" if result is None else f"failed ({result.detail})" if result.detail else "failed"
    return Score(
        value=_value_on(criterion, passed=passed),
        passed=passed,
        reason_code=None if result is None else result.reason_code,
        reasoning=f"rule {rule.type} on {rule.source_text_field}: {outcome}",
    )


def _value_on(criterion: EvaluationCriteria, *, passed: bool) -> ScoreValue:
    if criterion.minimum is not None and criterion.maximum is not None:
        return passed
    return _VALUES.get(criterion.scale, (False, True))[passed]
