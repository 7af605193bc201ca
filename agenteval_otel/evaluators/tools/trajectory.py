"""TrajectoryMatch and StepEfficiency: the calls that were made against the expected ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.built_in import NESTED, NotBlank
from agenteval_otel.evaluators.tools.arguments import ABSENT, is_same
from agenteval_otel.evaluators.tools.calls import (
    has_failed,
    key_of,
    parsed_arguments,
    trajectory_of,
)
from agenteval_otel.evaluators.tools.steps import TrajectoryEvaluator
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.models.inputs import NO_GROUND_TRUTH

_MOST_CALLS = 300  # each is compared with each
_LISTS = ("tool_calls", "toolCalls", "trajectory")


def _as_text(value: object) -> Any:
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    return value


# As text: a dump masks deep values and those that are named like a secret, arguments too.
_Arguments = Annotated[
    str,
    BeforeValidator(_as_text),
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}]}),
]


class ExpectedCall(BaseModel):
    """Describes a call of the expected trajectory. A tool's name alone is one with any arguments.

    Attributes:
        name: The tool's name. Case counts.
        arguments: Its arguments, a mapping or JSON text. When left out, any arguments fit.
    """

    model_config = NESTED

    name: NotBlank
    arguments: _Arguments | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_a_name(cls, value: object) -> Any:
        return {"name": value} if isinstance(value, str) else value


class Step(NamedTuple):
    """Holds a call as it is compared. Its arguments are `ABSENT` if any will do."""

    name: str
    arguments: object


def expected_steps(evaluation_input: EvaluationInput) -> list[Step] | None:
    """Return the trajectory that the ground truth holds, or None if it holds none.

    The ground truth is a list of calls, or a mapping with such a list.
    """
    value = parsed_arguments(evaluation_input.ground_truth)
    if isinstance(value, Mapping):
        value = next((value[name] for name in _LISTS if name in value), None)
    if not isinstance(value, list | tuple):
        return None
    steps: list[Step] = []
    for call in value:
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            return None
        steps.append(Step(call["name"], _expected_arguments(call)))
    return steps


def _expected_arguments(call: Mapping[str, Any]) -> object:
    for key in ("arguments", "args", "kwargs"):
        if key in call:
            return parsed_arguments(call[key])
    return ABSENT


class TrajectoryMatch(TrajectoryEvaluator, type="TrajectoryMatch"):
    """Scores how far the agent's tool calls are the expected ones, 0 to 1.

    The score is 2 x matched / (expected + made), the F1 of precision and recall. 1 is best. With
    `allow_extra` it is the recall, matched / expected. ``strict`` matches in order (the longest
    common subsequence), ``unordered`` in any order (the largest matching). It passes with 1:
    nothing is missing, superfluous or, with ``strict``, out of order. Skipped without an expected
    trajectory (an empty one expects no calls). Without any call it is still scored.

    Attributes:
        expected: The expected calls. When left out, those of the ground truth: a list of
            ``{name, arguments}``, or a mapping with such a list under ``tool_calls`` or
            ``trajectory``.
        order: ``strict`` or ``unordered``.
        arguments: ``exact`` (all equal), ``expected`` (the expected ones equal, others allowed) or
            ``ignore`` (any).
        allow_extra: Whether additional calls leave the score unchanged.
        tools: Only calls of these tools count, on both sides. All count when left out.
    """

    criterion_name: str = "trajectory_match"
    expected: ListOf[ExpectedCall] | None = None
    order: Literal["strict", "unordered"] = "strict"
    arguments: Literal["exact", "expected", "ignore"] = "exact"
    allow_extra: bool = False
    tools: ListOf[str] = ()

    def score(self, evaluation_input: EvaluationInput) -> Score:
        wanted = self._wanted(evaluation_input)
        calls = evaluation_input.tool_calls or ()
        made = [
            Step(call.name, parsed_arguments(call.arguments))
            for call in calls
            if not self.tools or call.name in self.tools
        ]
        if max(len(wanted), len(made)) > _MOST_CALLS:
            raise EvaluationError(f"more than {_MOST_CALLS} calls", error_type="too_large")
        fits = [[self._fits(step, other) for other in made] for step in wanted]
        any_order = _largest_matching(fits)
        matched = any_order if self.order == "unordered" else _longest_common(fits)
        value = self._value_of(matched, len(wanted), len(made))
        passed = value == 1.0
        reason_code = None
        if not passed:
            too_many = len(made) > any_order and not self.allow_extra
            if any_order < len(wanted):
                reason_code = "missing_call"
            elif too_many:
                reason_code = "extra_call"
            else:
                reason_code = "wrong_order"
        reasoning = f"{matched} of {len(wanted)} expected calls, {len(made)} were made"
        return Score(value=value, passed=passed, reason_code=reason_code, reasoning=reasoning)

    def _value_of(self, matched: int, wanted: int, made: int) -> float:
        if self.allow_extra:
            return matched / wanted if wanted else 1.0
        total = wanted + made
        return 2 * matched / total if total else 1.0

    def _wanted(self, evaluation_input: EvaluationInput) -> list[Step]:
        steps: list[Step] | None
        if self.expected is not None:
            steps = [_step_of(call) for call in self.expected]
        else:
            steps = expected_steps(evaluation_input)
        if steps is None:
            has_truth = evaluation_input.ground_truth is not None
            raise EvaluationSkipped("no expected trajectory" if has_truth else NO_GROUND_TRUTH)
        return [step for step in steps if not self.tools or step.name in self.tools]

    def _fits(self, step: Step, made: Step) -> bool:
        if step.name != made.name:
            return False
        if self.arguments == "ignore" or step.arguments is ABSENT:
            return True
        wanted = step.arguments or {}
        actual = made.arguments or {}
        if self.arguments == "exact":
            return is_same(wanted, actual)
        if not isinstance(wanted, Mapping) or not isinstance(actual, Mapping):
            return is_same(wanted, actual)
        return all(
            name in actual and is_same(value, actual[name]) for name, value in wanted.items()
        )


def _step_of(call: ExpectedCall) -> Step:
    arguments = ABSENT if call.arguments is None else parsed_arguments(call.arguments)
    return Step(call.name, arguments)


def _longest_common(fits: Sequence[Sequence[bool]]) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(fits[0]) + 1) if fits else [0]
    for fitting in fits:
        before = row
        row = [0]
        for at, fit in enumerate(fitting):
            row.append(before[at] + 1 if fit else max(before[at + 1], row[at]))
    return row[-1]


def _largest_matching(fits: Sequence[Sequence[bool]]) -> int:
    """Return the largest number of pairs, by augmenting paths.

    Taking the first pair that fits can miss it.
    """
    partner: dict[int, int] = {}

    def finds(wanted: int, tried: set[int]) -> bool:
        for at, fit in enumerate(fits[wanted]):
            if fit and at not in tried:
                tried.add(at)
                if at not in partner or finds(partner[at], tried):
                    partner[at] = wanted
                    return True
        return False

    return sum(finds(wanted, set()) for wanted in range(len(fits)))


class StepEfficiency(TrajectoryEvaluator, type="StepEfficiency"):
    """Scores how few tool calls were enough: expected / made, at most 1.

    1 is best, and passes.

    The expected number is `expected_steps`, else the length of the ground truth's trajectory, else
    the number of different calls that did not fail. Skipped if no call was made, or none is
    expected.

    Attributes:
        expected_steps: Number of calls that the task needs.
    """

    criterion_name: str = "step_efficiency"
    expected_steps: int | None = Field(default=None, ge=1)

    def score(self, evaluation_input: EvaluationInput) -> Score:
        calls = trajectory_of(evaluation_input)
        least = self.expected_steps
        source = "configured"
        if least is None:
            steps = expected_steps(evaluation_input)
            if steps is not None:
                least = len(steps)
                source = "of the ground truth"
        if least is None:
            different = {key_of(call) for call in calls if not has_failed(call)}
            least = max(1, len(different))
            source = "different and successful"
        if not least:
            raise EvaluationSkipped("no calls are expected")
        passed = len(calls) <= least
        return Score(
            value=min(1.0, least / len(calls)),
            passed=passed,
            reason_code=None if passed else "too_many_calls",
            reasoning=f"{len(calls)} calls, {least} {source}",
            metadata={"steps": len(calls), "expected": least},
        )
