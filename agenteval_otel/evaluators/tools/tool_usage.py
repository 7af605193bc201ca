"""ToolUsage and ToolUse: whether the agent called the tools that it should, as it should."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

from pydantic import AliasChoices, Field, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.built_in import NotBlank
from agenteval_otel.evaluators.operational import OperationalEvaluator
from agenteval_otel.evaluators.rules import RulesEvaluator
from agenteval_otel.evaluators.tools.arguments import ArgumentTerms
from agenteval_otel.evaluators.tools.calls import MadeCall, Source, calls_of, raw_arguments
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, Score, ScoreValue


class Outcome(NamedTuple):
    """Holds the outcome of a rule.

    Attributes:
        reason_code: Why the rule fails, or None when it passes.
        reasoning: The outcome in words.
        unused: Whether its optional tool was not called at all.
    """

    reason_code: str | None
    reasoning: str
    unused: bool = False


class ToolRule(ArgumentTerms):
    """Holds one rule. All of its conditions must hold.

    Attributes:
        criterion_name: The criterion that it decides. Several rules may decide one, each with its
            own result.
        expected_tool_name: The tool that it applies to, case-sensitive.
        is_required: Whether the tool must be called. By default a call is optional.
        checked_calls: The calls whose arguments must pass: the ``first``, ``all``, or ``any`` one
            of them.
        min_calls: The minimum number of calls, of the tool or, if none is set, of all tools.
        max_calls: The maximum number of calls, counted likewise.
        forbidden_tools: Tools that must not be called.
        sequence: Tools that must be called in this order. Others may be called in between.
        invalid_reason: Why a rule of an AgentDock document cannot be applied. It always gives a
            failed result.
    """

    criterion_name: NotBlank
    expected_tool_name: str | None = None
    is_required: bool = False
    checked_calls: Literal["first", "any", "all"] = "first"
    min_calls: int | None = Field(default=None, ge=0)
    max_calls: int | None = Field(default=None, ge=0)
    forbidden_tools: ListOf[str] = ()
    sequence: ListOf[str] = ()
    invalid_reason: str | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.expected_tool_name is None:
            if self.is_required or not self.is_empty:
                raise ValueError("argument checks and is_required need expected_tool_name")
            is_counted = self.min_calls is not None or self.max_calls is not None
            if not (is_counted or self.forbidden_tools or self.sequence or self.invalid_reason):
                raise ValueError(
                    "expected expected_tool_name, forbidden_tools, sequence, min_calls or max_calls"
                )
        return self

    def judged(self, calls: Sequence[MadeCall]) -> Outcome:
        """Judge the calls. Raises what a function that checks arguments raises."""
        if self.invalid_reason is not None:
            raise EvaluationError(self.invalid_reason, error_type="invalid_rule")
        for call in calls:
            if call.name in self.forbidden_tools:
                return Outcome("forbidden_tool", f"{call.name} was called")
        reached = iter([call.name for call in calls])
        for step in self.sequence:
            if step not in reached:  # goes on behind the step before
                order = " > ".join(self.sequence)
                return Outcome("wrong_order", f"{step} was not called in its turn ({order})")
        if self.expected_tool_name is not None:
            own_calls = [call for call in calls if call.name == self.expected_tool_name]
            return self._of_its_tool(own_calls)
        if self.min_calls is None and self.max_calls is None:
            return Outcome(None, "no forbidden tool, and the order is kept")
        return self._wrong_number(len(calls), "calls") or Outcome(None, f"{len(calls)} calls")

    def _of_its_tool(self, calls: Sequence[MadeCall]) -> Outcome:
        name = self.expected_tool_name
        if not calls:
            if self.is_required or self.min_calls:
                return Outcome("tool_not_called", f"{name} was not called")
            return Outcome(None, f"{name} was not called, and need not be", unused=True)
        wrong_number = self._wrong_number(len(calls), f"calls of {name}")
        if wrong_number is not None:
            return wrong_number
        if self.is_empty:
            return Outcome(None, f"{name} was called")
        checked = calls[:1] if self.checked_calls == "first" else calls
        problems = [self.problem(call.arguments) for call in checked]
        if not any(problems) or (self.checked_calls == "any" and None in problems):
            return Outcome(None, f"{name} was called")
        problem = next(filter(None, problems))
        return Outcome("invalid_arguments", f"{name} was called with wrong arguments: {problem}")

    def _wrong_number(self, count: int, what: str) -> Outcome | None:
        if self.min_calls is not None and count < self.min_calls:
            return Outcome("too_few_calls", f"{count} {what}, at least {self.min_calls} wanted")
        if self.max_calls is not None and count > self.max_calls:
            return Outcome("too_many_calls", f"{count} {what}, at most {self.max_calls} allowed")
        return None


class ToolUsage(RulesEvaluator, type="ToolUsage"):
    """Passes or fails criteria by rules on the agent's tool calls.

    Several rules may decide one criterion. A passed rule scores true, a failed one false. On
    ``numeric`` they score 1 and 0. A check that raises, a pattern that takes too long and a rule
    without conditions give a failed result, and the other rules go on.

    Attributes:
        rules: At least one. Rules for criteria that are not scored are ignored.
        tool_data_source: Source of the calls: the assistant's messages in the history,
            ``context.toolCalls``, or only the answer's own (``toolCalls``, captured from monitored
            calls). The first two include the answer's own.
        zero_when_unused: An optional tool that was not called scores 0. On ``binary`` and
            ``pass/fail`` it passes.
    """

    rules: ListOf[ToolRule] = Field(min_length=1)
    tool_data_source: Source = "messageHistory"
    zero_when_unused: bool = False

    def preferred_execution(self) -> Execution | None:
        return _execution_of(self.rules)

    def subject(self, evaluation_input: EvaluationInput) -> list[MadeCall]:
        return calls_of(evaluation_input, self.tool_data_source)

    def score_rule(
        self, rule: ToolRule, subject: list[MadeCall], criterion: EvaluationCriteria
    ) -> Score:
        outcome = rule.judged(subject)
        is_zero = outcome.unused and self.zero_when_unused
        if is_zero and criterion.scale not in ("binary", "pass/fail"):
            return Score(value=0, reasoning=outcome.reasoning)
        passed = outcome.reason_code is None
        is_numeric = criterion.scale == "numeric" and criterion.minimum is None
        value = int(passed) if is_numeric else passed
        return Score(
            value=value, passed=passed, reason_code=outcome.reason_code, reasoning=outcome.reasoning
        )

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        return 0 if criterion.scale == "numeric" else False


class Expectation(ArgumentTerms):
    """Describes an expected tool.

    With conditions on the arguments, only calls that meet them count.

    Attributes:
        name: The tool's name, case-sensitive.
        min_calls: The minimum number of calls that count. Below 1 means 1.
        arguments_contain: Text that the arguments' JSON must contain. ``raw_args_contain`` is
            another name for it.
    """

    name: str = Field(min_length=1)
    min_calls: int = 1
    arguments_contain: str | None = Field(
        default=None,
        serialization_alias="argumentsContain",
        validation_alias=AliasChoices("argumentsContain", "rawArgsContain", "raw_args_contain"),
    )

    def counts(self, call: MadeCall) -> bool:
        """Tell whether the call is one of those that are expected."""
        if call.name != self.name:
            return False
        wanted = self.arguments_contain
        if wanted is not None and wanted not in raw_arguments(call.arguments):
            return False
        return self.is_empty or self.problem(call.arguments) is None


class ToolUse(OperationalEvaluator, type="ToolUse"):
    """Scores the fraction of the expected tool calls that were made, 0 to 1.

    It passes with all of them. Without expected calls the score is 1.

    Calls in messages of every role count, and the answer's own (`EvaluationInput.tool_calls`). If a
    function raises, the evaluator fails. For separate criteria, forbidden tools and the order of
    calls use `ToolUsage`.

    Attributes:
        expectations: The expected calls.
    """

    criterion_name: str = "tool_use"
    expectations: ListOf[Expectation]

    def preferred_execution(self) -> Execution | None:
        return _execution_of(self.expectations)

    def score(self, evaluation_input: EvaluationInput) -> Score:
        calls: list[MadeCall] = []
        if self.expectations:
            calls = calls_of(evaluation_input, "messageHistory", any_role=True)
        problems = [_unmet(expectation, calls) for expectation in self.expectations]
        unmet = list(filter(None, problems))
        wanted = len(self.expectations)
        if not unmet:
            return Score(value=1.0, passed=True, reasoning=f"all {wanted} expectations met")
        met = wanted - len(unmet)
        return Score(
            value=met / wanted,
            passed=False,
            reason_code="tool_not_called",
            reasoning=f"{met} of {wanted} expectations met. Unmet: {', '.join(unmet)}",
        )


def _execution_of(rules: Sequence[ArgumentTerms]) -> Execution | None:
    if any(rule.has_function for rule in rules):
        return None
    return "inline" if all(rule.is_fast for rule in rules) else "process"


def _unmet(expectation: Expectation, calls: Sequence[MadeCall]) -> str | None:
    needed = max(1, expectation.min_calls)
    count = 0
    for call in calls:
        count += expectation.counts(call)
        if count == needed:  # the remaining calls are not checked: a check may raise
            return None
    problem = f"{expectation.name}: {count} of {needed} calls"
    others = sum(call.name == expectation.name for call in calls) - count
    if others:
        problem += f", {others} with other arguments"
    return problem
