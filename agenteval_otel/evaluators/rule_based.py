"""RuleBased: fixed rules on text (length, pattern, substrings, keywords) and on JSON (whether it is, its schema)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from pydantic import Field

from agenteval_otel.components import ListOf
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import failure_of, find_criterion, result_of
from agenteval_otel.evaluators.rule_checks import JsonCheck, JsonSchemaCheck, ReasonCode, Rule, Verdict, WrongCheck
from agenteval_otel.evaluators.rules import RulesEvaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, Score, ScoreValue
from agenteval_otel.patterns import DEFAULT_LIMIT_S

__all__ = ["RuleBased"]


class RuleBased(RulesEvaluator, type="RuleBased"):
    """Passes or fails criteria by fixed rules; several rules may decide one criterion, each with its own result.

    A passed rule scores true on ``binary``, ``pass/fail``, declared ranges and custom scales, 1 on ``numeric``, 5 on
    ``likert5`` and ``"pass"`` on the scale ``string``; a failed one false, 0, 1 and ``"fail"``. A rule whose text is
    missing, whose pattern takes too long or that is wrong gives a failed result; the others go on.

    Attributes:
        rules: At least one. Rules for criteria that are not asked for are passed over.
        regex_limit_s: Time limit of one pattern on one text, in seconds; patterns that are searched in linear time,
            which the extra ``re2`` does for most, need none.
    """

    reason_codes: ClassVar[tuple[str, ...]] = get_args(ReasonCode)

    rules: ListOf[Rule] = Field(json_schema_extra={"minItems": 1})
    regex_limit_s: float = Field(default=DEFAULT_LIMIT_S, gt=0, le=60)

    if TYPE_CHECKING:

        def __init__(self, *, rules: Sequence[Rule | Mapping[str, Any]], **fields: Any) -> None: ...

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        """One result a rule whose criterion is asked for, in rule order."""
        results = []
        for rule in self.rules:
            criterion = find_criterion(criteria, rule.criterion_name)
            if criterion is not None:
                results.append(self._apply(rule, criterion, evaluation_input))
        return results

    def _apply(self, rule: Rule, criterion: EvaluationCriteria, evaluation_input: EvaluationInput) -> EvaluationResult:
        try:
            verdict = self._verdict(rule, evaluation_input)
        except TimeoutError:
            error, error_type = f"the pattern took longer than {self.regex_limit_s:g} s", "timeout"
        except EvaluationError as failure:
            error, error_type = str(failure), failure.error_type
        except Exception as failure:  # of a mapping of the program's own, say
            error, error_type = f"{type(failure).__name__}: {failure}", type(failure).__name__
        else:
            return result_of(self, criterion, _score_of(rule, verdict, criterion))
        filler = _value_on(criterion, passed=False)
        return failure_of(self, criterion.name, error, error_type=error_type, filler=filler)

    def _verdict(self, rule: Rule, evaluation_input: EvaluationInput) -> Verdict:
        field, check = rule.source_text_field or "response", rule.config
        if isinstance(check, WrongCheck | JsonCheck):
            value = evaluation_input.value_at(field)
            if value is None and field != "response" and isinstance(check, JsonCheck):
                raise EvaluationError(f"nothing at {field}", error_type="missing_text")
            return check.verdict(value, "", limit_s=self.regex_limit_s)
        text = evaluation_input.text_at(field)
        if isinstance(check, JsonSchemaCheck) and text is None:
            value = evaluation_input.value_at(field)
            if value is not None:
                return check.verdict(value, None, limit_s=self.regex_limit_s)
        if text is None:
            raise EvaluationError(f"no text at {field}", error_type="missing_text")
        return check.verdict(text, text, limit_s=self.regex_limit_s)


def _score_of(rule: Rule, verdict: Verdict, criterion: EvaluationCriteria) -> Score:
    passed = verdict is None
    said = "passed" if verdict is None else f"failed ({verdict.detail})" if verdict.detail else "failed"
    return Score(
        value=_value_on(criterion, passed=passed),
        passed=passed,
        reason_code=None if verdict is None else verdict.reason,
        reasoning=f"rule {rule.config.type} on {rule.source_text_field or 'response'}: {said}",
    )


def _value_on(criterion: EvaluationCriteria, *, passed: bool) -> ScoreValue:
    if criterion.minimum is not None and criterion.maximum is not None:
        return passed
    values: dict[str, tuple[ScoreValue, ScoreValue]] = {
        "numeric": (0, 1),
        "likert5": (1, 5),
        "string": ("fail", "pass"),
    }
    return values.get(criterion.scale, (False, True))[passed]
