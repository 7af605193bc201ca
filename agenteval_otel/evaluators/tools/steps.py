"""ToolLoops and ErrorRecovery: calls that lead nowhere, and calls that failed.

ErrorRecovery looks at what the agent made of its failed calls.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field, field_validator

from agenteval_otel.components import ListOf
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.operational import OperationalEvaluator
from agenteval_otel.evaluators.tools.calls import has_failed, key_of, trajectory_of
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.models.inputs import ToolCall
from agenteval_otel.runtime.patterns import check_pattern, compile_pattern

_LONGEST_CYCLE = 8


class TrajectoryEvaluator(OperationalEvaluator):
    """Looks at the agent's tool calls in their order, also if the agent raised in the end.

    Skipped if it made no calls.
    """

    evaluates_errors: ClassVar[bool] = True


class ToolLoops(TrajectoryEvaluator, type="ToolLoops"):
    """Scores the share of tool calls that were not made before: 1 - repeated / calls.

    1 is best. A call is repeated if an earlier one had the same tool, equal arguments and, if both
    are known, the same result: a retry that succeeds is not a repetition, nor is polling a state
    that changes. It passes with at most `max_repeats` of them and no loop, which is a sequence of
    up to eight calls made `loop_from` times in a row.

    Attributes:
        max_repeats: Maximum number of repeated calls that still passes.
        loop_from: How many times in a row the same sequence of calls must be made to count as a
            loop.
    """

    criterion_name: str = "tool_loops"
    max_repeats: int = Field(default=0, ge=0)
    loop_from: int = Field(default=3, ge=2)

    def score(self, evaluation_input: EvaluationInput) -> Score:
        steps = [(*key_of(call), _result_of(call)) for call in trajectory_of(evaluation_input)]
        results: dict[tuple[str, str], set[str | None]] = {}
        repeated: list[str] = []
        for name, arguments, result in steps:
            known = results.setdefault((name, arguments), set())
            if known and (result in known or None in known or result is None):
                repeated.append(name)
            known.add(result)
        cycle, rounds = _longest_cycle(steps)
        is_loop = rounds >= self.loop_from
        passed = not is_loop and len(repeated) <= self.max_repeats
        reasoning = f"{len(repeated)} of {len(steps)} calls had been made before"
        if repeated:
            reasoning += f" ({', '.join(dict.fromkeys(repeated))})"
        if is_loop:
            sequence = " > ".join(name for name, _, _ in cycle)
            reasoning += f", and {sequence} came {rounds} times in a row"
        if passed:
            reason_code = None
        elif is_loop:
            reason_code = "loop"
        else:
            reason_code = "repeated_call"
        return Score(
            value=1.0 - len(repeated) / len(steps),
            passed=passed,
            reasoning=reasoning,
            reason_code=reason_code,
            metadata={"repeated": len(repeated), "rounds": rounds},
        )


def _result_of(call: ToolCall) -> str | None:
    if call.error is not None:
        return f"error: {call.error}"
    if call.result is None:
        return None
    return json.dumps(call.result, sort_keys=True, default=str)


def _longest_cycle(steps: Sequence[Any]) -> tuple[Sequence[Any], int]:
    """Return the cycle of up to eight steps that comes most often in a row, and how often.

    Without a cycle, return no steps and 1.
    """
    best: tuple[Sequence[Any], int] = ((), 1)
    for size in range(1, min(_LONGEST_CYCLE, len(steps) // 2) + 1):
        run = 0
        for at in range(size, len(steps)):
            run = run + 1 if steps[at] == steps[at - size] else 0
            if run // size + 1 > best[1]:
                best = (steps[at - size + 1 : at + 1], run // size + 1)
    return best


class ErrorRecovery(TrajectoryEvaluator, type="ErrorRecovery"):
    """Scores the share of failed tool calls after which a call of the same purpose succeeded.

    That is recovered / failed. 1 is best.

    A call failed if it has an error, or if its result is one: a text that begins with "Error",
    "Exception", "Failed", "Failure" or "Traceback", a mapping with ``isError`` or ``error``, or any
    in which `error_pattern` occurs. It passes if all recovered. Skipped if no call failed.

    Attributes:
        same_purpose: Lists of interchangeable tools. A tool always has the same purpose as itself.
        error_pattern: A regular expression. A call has failed if it occurs in the result as text.
    """

    criterion_name: str = "error_recovery"
    same_purpose: ListOf[ListOf[str]] = ()
    error_pattern: str | None = None

    _pattern_compiles = field_validator("error_pattern")(check_pattern)

    def preferred_execution(self) -> Execution | None:
        is_fast = self.error_pattern is None or compile_pattern(self.error_pattern).is_linear
        return "inline" if is_fast else "process"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        calls = trajectory_of(evaluation_input)
        failed = [self._failed(call) for call in calls]
        if not any(failed):
            raise EvaluationSkipped("no tool call failed")
        unrecovered: list[str] = []
        for at, call in enumerate(calls):
            if not failed[at]:
                continue
            recovers = any(
                not failed[later] and self._same(call.name, calls[later].name)
                for later in range(at + 1, len(calls))
            )
            if not recovers:
                unrecovered.append(call.name)
        number = sum(failed)
        recovered = number - len(unrecovered)
        reasoning = f"{recovered} of {number} failed calls were followed by one that succeeded"
        if unrecovered:
            reasoning += f", but not {', '.join(dict.fromkeys(unrecovered))}"
        return Score(
            value=1.0 - len(unrecovered) / number,
            passed=not unrecovered,
            reasoning=reasoning,
            reason_code="not_recovered" if unrecovered else None,
            metadata={"failed": number},
        )

    def _failed(self, call: ToolCall) -> bool:
        if has_failed(call):
            return True
        if self.error_pattern is None or call.result is None:
            return False
        text = call.result if isinstance(call.result, str) else json.dumps(call.result, default=str)
        try:
            return compile_pattern(self.error_pattern).occurs_in(text)
        except TimeoutError:
            raise EvaluationError(
                "the pattern takes too long on the result", error_type="timeout"
            ) from None

    def _same(self, name: str, other: str) -> bool:
        return name == other or any(name in tools and other in tools for tools in self.same_purpose)
