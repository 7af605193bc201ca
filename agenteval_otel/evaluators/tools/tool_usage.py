"""ToolUsage: whether the agent called the tools that it should, as it should."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import Field, field_validator, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import Execution, failure_of, find_criterion, result_of
from agenteval_otel.evaluators.rules import RulesEvaluator
from agenteval_otel.evaluators.tools.arguments import ArgumentTerms, with_functions, with_names
from agenteval_otel.evaluators.tools.calls import MadeCall, Source, calls_of
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, Score, ScoreValue
from agenteval_otel.models.value import replaced
from agenteval_otel.runtime.masking import message_of

__all__ = ["Finding", "ReasonCode", "ToolRule", "ToolUsage"]

ReasonCode = Literal[
    "tool_not_called", "invalid_arguments", "too_few_calls", "too_many_calls", "forbidden_tool", "wrong_order",
]  # fmt: skip


class Finding(NamedTuple):
    """What a rule found: why it fails (None when it passes), in words, and whether its tool was there to be judged."""

    reason_code: ReasonCode | None
    reasoning: str
    unused: bool = False


class ToolRule(ArgumentTerms):
    """One rule; everything that it says must hold.

    Attributes:
        criterion_name: The criterion that it decides; several rules may decide one, each with its own result.
        expected_tool_name: The tool that it is about; case counts.
        is_required: The tool must be called; without it a call is optional.
        checked_calls: Whose arguments are checked: the ``first`` call's; ``all`` calls', of which
            each must hold; or ``any``, of which one must.
        min_calls: The least number of calls: of the tool, or without one of all tools.
        max_calls: The largest number of calls.
        forbidden_tools: Tools that must not be called.
        sequence: Tools that must be called in this order; others may be called in between.
        invalid_reason: Why nothing can decide the rule: it gives a failed result each time. Set for a rule of an
            AgentDock document that names no tool.
    """

    criterion_name: str
    expected_tool_name: str | None = None
    is_required: bool = False
    checked_calls: Literal["first", "any", "all"] = "first"
    min_calls: int | None = Field(default=None, ge=0)
    max_calls: int | None = Field(default=None, ge=0)
    forbidden_tools: ListOf[str] = ()
    sequence: ListOf[str] = ()
    invalid_reason: str | None = None

    @field_validator("criterion_name")
    @classmethod
    def _criterion_has_a_name(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be blank")
        return value

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.expected_tool_name is None:
            if self.is_required or not self.says_nothing:
                raise ValueError("argument checks and is_required need expected_tool_name")
            others = (self.min_calls, self.max_calls, self.forbidden_tools or None, self.sequence or None)
            if others == (None,) * 4 and self.invalid_reason is None:
                raise ValueError("expected expected_tool_name, forbidden_tools, sequence, min_calls or max_calls")
        if self.max_calls is not None and self.max_calls < max(self.min_calls or 0, int(self.is_required)):
            raise ValueError("no number of calls is enough and not too many")
        if self.expected_tool_name in self.forbidden_tools:
            raise ValueError("the expected tool is among forbidden_tools")
        return self

    def judged(self, calls: Sequence[MadeCall]) -> Finding:
        """Judge the calls.

        Raises:
            EvaluationError: (``invalid_rule``) The rule has an `invalid_reason`.
            Exception: Whatever a function that checks arguments raises.
        """
        if self.invalid_reason is not None:
            raise EvaluationError(self.invalid_reason, error_type="invalid_rule")
        finding = self._of_all_tools(calls)
        if finding is not None:
            return finding
        if self.expected_tool_name is not None:
            return self._of_its_tool([call for call in calls if call.name == self.expected_tool_name])
        if self.min_calls is None and self.max_calls is None:
            return Finding(None, "no forbidden tool, and the order is kept")
        return self._counted(len(calls), "calls") or Finding(None, f"{len(calls)} calls")

    def _of_all_tools(self, calls: Sequence[MadeCall]) -> Finding | None:
        names = [call.name for call in calls]
        forbidden = next((name for name in names if name in self.forbidden_tools), None)
        if forbidden is not None:
            return Finding("forbidden_tool", f"{forbidden} was called")
        missing = _missing_step(names, self.sequence)
        if missing is not None:
            return Finding("wrong_order", f"{missing} was not called in its turn ({' > '.join(self.sequence)})")
        return None

    def _of_its_tool(self, calls: Sequence[MadeCall]) -> Finding:
        name = self.expected_tool_name
        if not calls:
            if self.is_required or self.min_calls:
                return Finding("tool_not_called", f"{name} was not called")
            return Finding(None, f"{name} was not called, and need not be", unused=True)
        counted = self._counted(len(calls), f"calls of {name}")
        if counted is not None:
            return counted
        problem = None if self.says_nothing else self._problem_of(calls)
        if problem is not None:
            return Finding("invalid_arguments", f"{name} was called with wrong arguments: {problem}")
        return Finding(None, f"{name} was called")

    def _counted(self, count: int, what: str) -> Finding | None:
        if self.min_calls is not None and count < self.min_calls:
            return Finding("too_few_calls", f"{count} {what}, at least {self.min_calls} wanted")
        if self.max_calls is not None and count > self.max_calls:
            return Finding("too_many_calls", f"{count} {what}, at most {self.max_calls} allowed")
        return None

    def _problem_of(self, calls: Sequence[MadeCall]) -> str | None:
        if self.checked_calls == "first":
            return self.problem(calls[0].arguments)
        problems = (self.problem(call.arguments) for call in calls)
        if self.checked_calls == "all":
            return next((problem for problem in problems if problem is not None), None)
        first: str | None = None
        for problem in problems:
            if problem is None:
                return None
            first = first or problem
        return first


def _missing_step(names: Iterable[Any], sequence: Sequence[str]) -> str | None:
    """The first tool of the sequence that the calls do not reach; None when they follow it to its end."""
    left = iter(names)
    return next((step for step in sequence if not any(name == step for name in left)), None)


class ToolUsage(RulesEvaluator, type="ToolUsage"):
    """Passes or fails criteria by rules on the agent's tool calls; several rules may decide one criterion.

    A passed rule scores true, a failed one false; on ``numeric`` 1 and 0. A check that raises, a pattern that takes too
    long and a rule that says nothing give a failed result; the other rules go on.

    Attributes:
        rules: At least one. Rules for criteria that are not asked for are passed over.
        tool_data_source: Where calls are looked for: the assistant's messages in the history, ``context.toolCalls``,
            or only the answer's own (``toolCalls``: what monitored calls capture), which the others are completed by.
        zero_when_unused: An optional tool that was not called scores 0 on other scales than ``binary`` and
            ``pass/fail``, where it passes.
    """

    reason_codes: ClassVar[tuple[str, ...]] = get_args(ReasonCode)

    rules: ListOf[ToolRule] = Field(json_schema_extra={"minItems": 1})
    tool_data_source: Source = "messageHistory"
    zero_when_unused: bool = False

    @cached_property
    def _preferred_execution(self) -> Execution | None:
        if any(callable(rule.argument_checks) for rule in self.rules):
            return None  # a function of the user's: importing its module once more could have effects of its own
        return "inline" if all(rule.is_fast for rule in self.rules) else "process"

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
        calls = calls_of(evaluation_input, self.tool_data_source) if any(needs_calls for _, needs_calls in due) else []
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
            # A function of the user's: a run error, which takes no other rule along.
            failed = failure_of(self, criterion.name, message_of(error), error_type=type(error).__name__)
            return replaced(failed, {"raised": True})

    def _score(self, finding: Finding, criterion: EvaluationCriteria) -> Score:
        passed = finding.reason_code is None
        value: ScoreValue = passed
        if finding.unused and self.zero_when_unused and criterion.scale not in ("binary", "pass/fail"):
            return Score(value=0, reasoning=finding.reasoning)
        if criterion.scale == "numeric" and criterion.minimum is None:
            value = int(passed)
        return Score(value=value, passed=passed, reason_code=finding.reason_code, reasoning=finding.reasoning)
