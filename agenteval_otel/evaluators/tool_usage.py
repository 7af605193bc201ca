"""ToolUsage: whether the agent called the tools that it should, as it should."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self, get_args

from pydantic import Field, ValidationInfo, model_validator

from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import Execution, failure_of, find_criterion, result_of
from agenteval_otel.evaluators.rules import RulesEvaluator
from agenteval_otel.evaluators.tool_usage_arguments import with_functions, with_names
from agenteval_otel.evaluators.tool_usage_calls import MadeCall, Source, calls_of
from agenteval_otel.evaluators.tool_usage_rules import Finding, ReasonCode, ToolRule
from agenteval_otel.masking import message_of
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, Score, ScoreValue
from agenteval_otel.models.value import replaced

__all__ = ["ToolUsage"]


class ToolUsage(RulesEvaluator, type="ToolUsage"):
    """Passes or fails criteria by rules on the agent's tool calls; several rules may decide one criterion.

    A passed rule scores true, a failed one false; on ``numeric`` 1 and 0. A check that raises, a pattern that takes too
    long and a rule that says nothing give a failed result; the other rules go on.

    Attributes:
        rules: At least one. Rules for criteria that are not asked for are passed over.
        tool_data_source: Where calls are looked for: the assistant's messages in the history, ``context.toolCalls``,
            or only the answer's own (``toolCalls``: what monitored calls capture), which the others are completed by.
        zero_when_unused: An optional tool that was not called scores 0 on other scales than ``binary`` and
            ``pass/fail``, where it passes. As in the original, whose form of configuration implies it.
    """

    reason_codes: ClassVar[tuple[str, ...]] = get_args(ReasonCode)

    rules: tuple[ToolRule, ...] = Field(json_schema_extra={"minItems": 1})
    tool_data_source: Source = "messageHistory"
    zero_when_unused: bool = False

    @model_validator(mode="before")
    @classmethod
    def _as_the_originals_write_it(cls, data: Any, info: ValidationInfo) -> Any:
        if not (info.context and info.context.get("original")) or not isinstance(data, Mapping):
            return data
        return {"zero_when_unused": True, **{key: value for key, value in data.items() if value is not None}}

    @cached_property
    def _preferred_execution(self) -> Execution | None:
        if any(callable(rule.argument_checks) for rule in self.rules):
            return None  # a function of the user's: importing its module once more could have effects of its own
        return "inline" if all(rule.is_quick for rule in self.rules) else "process"

    def to_child(self) -> dict[str, Any]:
        """As every evaluator's, with the modules and qualified names of the functions.

        Raises:
            LookupError: A function is not what its module has by this name: a lambda, a local or a partial one.
        """
        fields = super().to_child()
        with_names(fields["rules"], self.rules, "argument_checks")
        return fields

    @classmethod
    def from_child(cls, fields: Mapping[str, Any]) -> Self:
        return cls.model_validate({**fields, "rules": with_functions(fields["rules"], "argument_checks")})

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        """One result a rule whose criterion is asked for, in rule order."""
        due = [(rule, find_criterion(criteria, rule.criterion_name)) for rule in self.rules]
        calls = calls_of(evaluation_input, self.tool_data_source) if any(one for _, one in due) else []
        return [self._apply(rule, criterion, calls) for rule, criterion in due if criterion is not None]

    def _apply(self, rule: ToolRule, criterion: EvaluationCriteria, calls: list[MadeCall]) -> EvaluationResult:
        try:
            return result_of(self, criterion, self._score(rule.judged(calls), criterion))
        except EvaluationSkipped as skipped:
            changes: dict[str, Any] = {"skip_reason": str(skipped) or "skipped", "error": None, "error_type": None}
            return replaced(failure_of(self, criterion.name, "", error_type=""), changes)
        except EvaluationError as error:
            filler = 0 if criterion.scale == "numeric" else False
            return failure_of(self, criterion.name, str(error), error_type=error.error_type, filler=filler)
        except Exception as error:
            # A function of the user's: as a run error it is where the original has it, and takes no other rule along.
            failed = failure_of(self, criterion.name, message_of(error), error_type=type(error).__name__)
            return replaced(failed, {"raised": True})

    def _score(self, found: Finding, criterion: EvaluationCriteria) -> Score:
        passed = found.reason_code is None
        value: ScoreValue = passed
        if found.unused and self.zero_when_unused and criterion.scale not in ("binary", "pass/fail"):
            return Score(value=0, reasoning=found.reasoning)
        if criterion.scale == "numeric" and criterion.minimum is None:
            value = int(passed)
        return Score(value=value, passed=passed, reason_code=found.reason_code, reasoning=found.reasoning)
