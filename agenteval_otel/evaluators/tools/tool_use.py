"""ToolUse: which of the expected tool calls the agent made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import AliasChoices, Field, field_serializer, field_validator
from pydantic.json_schema import SkipJsonSchema

from agenteval_otel.components import ListOf
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.imports import qualified_name
from agenteval_otel.evaluators.operational import OperationalEvaluator
from agenteval_otel.evaluators.tools.arguments import (
    ArgumentTerms,
    answer_of,
    synchronous,
    with_functions,
    with_names,
)
from agenteval_otel.evaluators.tools.calls import MadeCall, calls_of, raw_arguments
from agenteval_otel.models import EvaluationInput, Score

__all__ = ["Expectation", "ToolUse"]

_FUNCTIONS = ("argument_checks", "arguments_match")


class Expectation(ArgumentTerms):
    """A tool that is to be called; with anything said of the arguments, the calls that are like that count.

    Attributes:
        name: The tool's name; case counts.
        min_calls: The least number of calls that count; below 1 means 1.
        arguments_contain: What the arguments' JSON text has in it; ``raw_args_contain`` is another name for it.
        arguments_match: In a program, a function of the arguments' JSON text that gives whether they are meant.
    """

    name: str = Field(min_length=1)
    min_calls: int = 1
    arguments_contain: str | None = Field(
        default=None,
        validation_alias=AliasChoices("argumentsContain", "rawArgsContain", "raw_args_contain"),
        serialization_alias="argumentsContain",
    )
    arguments_match: SkipJsonSchema[Callable[[str], Any]] | None = None

    @field_validator("arguments_match", mode="before")
    @classmethod
    def _need_not_be_awaited(cls, value: Any) -> Any:
        return value if value is None else synchronous(value, "arguments' JSON text")

    @field_serializer("arguments_match", when_used="json")
    def _matcher_by_name(self, value: Any) -> Any:
        return None if value is None else f"function {qualified_name(value)}"

    @property
    def is_fast(self) -> bool:
        """Whether no arguments can make the matching take long."""
        return self.arguments_match is None and super().is_fast

    def counts(self, call: MadeCall) -> bool:
        """Whether the call is one of those that are expected. Raises whatever a function raises."""
        if call.name != self.name:
            return False
        if self.arguments_contain is not None and self.arguments_contain not in raw_arguments(call.arguments):
            return False
        if self.arguments_match is not None and answer_of(self.arguments_match(raw_arguments(call.arguments))):
            return False
        return self.says_nothing or self.problem(call.arguments) is None


class ToolUse(OperationalEvaluator, type="ToolUse"):
    """Fraction of the expected tool calls that were made, 0 to 1; it passes with all of them. Without any, 1.

    Calls on messages of every role count, and the answer's own (`EvaluationInput.tool_calls`). What a function raises
    is this evaluator's failure. For rules of which each decides a criterion of its own, forbidden tools and the order
    of calls there is `ToolUsage`.

    Attributes:
        expectations: What is to be called.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("tool_not_called",)

    criterion_name: str = "tool_use"
    expectations: ListOf[Expectation]

    def preferred_execution(self) -> Execution | None:
        """``process`` with a schema or a pattern that arguments can make slow; nobody knows a function's time."""
        return self._preferred_execution

    @cached_property
    def _preferred_execution(self) -> Execution | None:
        if any(each.arguments_match or callable(each.argument_checks) for each in self.expectations):
            return None  # a function of the user's: importing its module once more could have effects of its own
        return "inline" if all(expectation.is_fast for expectation in self.expectations) else "process"

    def to_child(self) -> dict[str, Any]:
        """As every evaluator's, with the modules and qualified names of the functions.

        Raises:
            LookupError: A function is not what its module has by this name: a lambda, a local or a partial one.
        """
        fields = super().to_child()
        for name in _FUNCTIONS:
            with_names(fields["expectations"], self.expectations, name)
        return fields

    @classmethod
    def from_child(cls, fields: Mapping[str, Any]) -> Self:
        expectations = fields["expectations"]
        for name in _FUNCTIONS:
            expectations = with_functions(expectations, name)
        return cls.model_validate({**fields, "expectations": expectations})

    def score(self, evaluation_input: EvaluationInput) -> Score:
        """Count the calls of each expectation."""
        calls = calls_of(evaluation_input, "messageHistory", any_role=True) if self.expectations else []
        unmet = [problem for expectation in self.expectations if (problem := _unmet(expectation, calls))]
        wanted = len(self.expectations)
        if not unmet:
            return Score(value=1.0, passed=True, reasoning=f"all {wanted} expectations met")
        return Score(
            value=(wanted - len(unmet)) / wanted, passed=False, reason_code="tool_not_called",
            reasoning=f"{wanted - len(unmet)} of {wanted} expectations met; {'; '.join(unmet)}",
        )  # fmt: skip


def _unmet(expectation: Expectation, calls: Sequence[MadeCall]) -> str | None:
    """What an expectation lacks; None when it is met."""
    needed = max(1, expectation.min_calls)
    count = 0
    for call in calls:
        count += expectation.counts(call)
        if count == needed:
            return None
    others = sum(call.name == expectation.name for call in calls) - count
    return f"{expectation.name}: {count} of {needed} calls" + (f", {others} with other arguments" if others else "")
