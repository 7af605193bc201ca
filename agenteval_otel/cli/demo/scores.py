"""What the demo scores, and the storage provider that collects the scores for the screen."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from agenteval_otel import EvaluationCriteria, EvaluationInput, Score
from agenteval_otel.engine.objectives import BreachSettings, ObjectiveCrossing
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import Evaluator, Func, ResponseHealth, RuleBased
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.models.intervals import Estimate, estimate_of
from agenteval_otel.offline.reports.figures import setting
from agenteval_otel.offline.reports.totals import TargetOutcome, Totals

OBJECTIVES = {
    "response_health": 0.8,
    "short_enough": 0.85,
    "courtesy": 0.8,
    "names_the_topic": 0.85,
    "next_step": 0.8,
    "tools_worked": 0.8,
}
# a run has hundreds of answers: an alarm a month would be late
_BREACH = BreachSettings(false_alarm_every=1_000)
_MAX_VERDICTS = 20_000
_LEVELS = "▁▂▃▄▅▆▇█"
_WORD = re.compile(
    r"\b(?!(?:about|anything|hello|order|please|thanks?|there|where|which|would)\b)[^\W\d_]{5,}"
)
"""Words that may name a topic."""
_NEXT_STEP = re.compile(
    r"\?\s*$|\b(?:repl(?:y|ies)|ticket|let me know|please (?:confirm|provide|reply|share|send)|would you like)\b",
    re.IGNORECASE,
)


def demo_criteria() -> tuple[EvaluationCriteria, ...]:
    return tuple(
        EvaluationCriteria(name=name, objective=objective) for name, objective in OBJECTIVES.items()
    )


def demo_evaluators(*, max_characters: int = 320) -> tuple[Evaluator, ...]:
    """Return the evaluators of a run. Answers longer than `max_characters` fail `short_enough`."""
    polite = {"keywords": ["thank", "please", "happy"], "expected_outcome": "any"}
    rules = [
        {"criterion": "short_enough", "type": "length", "max": max_characters},
        {"criterion": "courtesy", "type": "includes", **polite},
    ]
    functions = (Func.of(names_the_topic), Func.of(next_step), Func.of(tools_worked, threshold=1.0))
    return (ResponseHealth(), RuleBased.load({"rules": rules}), *functions)


def names_the_topic(evaluation_input: EvaluationInput) -> Score:
    """Tell whether the answer repeats a telling word of the question.

    Skips questions without one.
    """
    telling = set(_WORD.findall((evaluation_input.prompt or "").lower()))
    if not telling:
        raise EvaluationSkipped("the question has no telling word")
    named = not telling.isdisjoint(_WORD.findall(evaluation_input.response_text.lower()))
    return Score(value=named, passed=named, reason_code=None if named else "topic_missing")


def next_step(evaluation_input: EvaluationInput) -> Score:
    """Tell whether the answer says or asks what happens next. Skips answers without text."""
    if not evaluation_input.response_text.strip():
        raise EvaluationSkipped("no text")
    present = _NEXT_STEP.search(evaluation_input.response_text) is not None
    return Score(value=present, passed=present, reason_code=None if present else "no_next_step")


def tools_worked(evaluation_input: EvaluationInput) -> Score:
    """Return the share of the tool calls with a result that is no error.

    Skips turns without tool calls.
    """
    results = [call.result for call in evaluation_input.tool_calls or ()]
    if not results:
        raise EvaluationSkipped("no tool was called")
    failed = sum(map(_is_error_result, results))
    return Score(value=1 - failed / len(results), reason_code="tool_failed" if failed else None)


def _is_error_result(result: object) -> bool:
    if isinstance(result, dict):
        return bool(result.get("error"))
    return str(result).lower().startswith("error")


class DemoVerdict(NamedTuple):
    """A result that passed or failed, and which answer in order it is of."""

    answer: int
    ended_ns: int
    passed: bool
    weight: float
    reason: str | None


class Scores:
    """Keeps totals and the latest verdicts, as a storage provider.

    Keeps the first breach of each criterion's objective too. `save_result` and `on_breach` run on
    threads of the pipeline. The screen reads on its own thread.
    """

    def __init__(
        self, criteria: Sequence[EvaluationCriteria], breach: BreachSettings | None = None
    ) -> None:
        self.totals = Totals(criteria)
        self.breach = breach or _BREACH
        self.breaches: dict[str, ObjectiveCrossing] = {}
        self.failing_trace: str | None = None
        self._verdicts: dict[str, deque[DemoVerdict]] = defaultdict(
            lambda: deque(maxlen=_MAX_VERDICTS)
        )
        self._lags_ms: deque[float] = deque(maxlen=_MAX_VERDICTS)

    def on_breach(self, crossing: ObjectiveCrossing) -> None:
        self.breaches.setdefault(crossing.criterion, crossing)

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        self.totals.add(aggregated)
        if aggregated.ended_ns is not None and aggregated.response_ended_ns is not None:
            lag_ns = aggregated.ended_ns - aggregated.response_ended_ns
            self._lags_ms.append(max(0.0, lag_ns / 1e6))
        for result in aggregated.results:
            if result.passed is not None and result.probability:
                verdict = DemoVerdict(
                    self.totals.inputs,
                    result.ended_ns or 0,
                    result.passed,
                    1 / result.probability,
                    result.reason_code,
                )
                self._verdicts[result.criterion_name].append(verdict)
            if result.passed is False and aggregated.span:
                self.failing_trace = aggregated.span.trace_id

    def targets(self) -> list[TargetOutcome]:
        """Return the objectives, and whether they were never breached."""
        targets: list[TargetOutcome] = []
        for criterion in self.totals.criteria:
            if criterion.objective is not None:
                objective = setting(criterion.objective)
                met = criterion.name not in self.breaches
                targets.append(TargetOutcome(criterion.name, objective, met))
        return targets

    def trends(self, width: int) -> dict[str, str]:
        """Return the pass rate of each criterion over time. Each sign is a level from 0 to 1."""
        trends = {}
        for name in list(self._verdicts):
            verdicts = list(self._verdicts[name])
            count = min(width, len(verdicts) // 4)
            signs = ""
            for number in range(count):
                begin = number * len(verdicts) // count
                end = (number + 1) * len(verdicts) // count
                rate = _pass_rate(verdicts[begin:end])
                if rate is not None:
                    level = int(rate.mean * len(_LEVELS))
                    signs += _LEVELS[min(len(_LEVELS) - 1, level)]
            trends[name] = signs
        return trends

    def around(
        self, breach: ObjectiveCrossing
    ) -> tuple[int, Estimate | None, Sequence[DemoVerdict]]:
        """Return the answers so far, the pass rate and the verdicts at an alarm.

        The first is the number of answers at the alarm, the last are the verdicts that raised it.
        The pass rate is that of the verdicts before these.
        """
        everything = list(self._verdicts[breach.criterion])
        verdicts = [verdict for verdict in everything if verdict.ended_ns <= breach.at_ns]
        answers = verdicts[-1].answer if verdicts else 0
        before = verdicts[: -breach.count]
        return answers, _pass_rate(before), verdicts[-breach.count :]

    def lag_ms(self) -> tuple[float, float] | None:
        """Return the time from the end of an answer to its scores, in milliseconds.

        The two numbers are the median and the 95th percentile. The result is None if nothing was
        scored.
        """
        lags = sorted(self._lags_ms.copy())
        if not lags:
            return None
        return statistics.median(lags), lags[int(0.95 * (len(lags) - 1))]


def _pass_rate(verdicts: Sequence[DemoVerdict]) -> Estimate | None:
    """Return the weighted share that passed, with its interval."""
    return estimate_of((1.0 if verdict.passed else 0.0, verdict.weight) for verdict in verdicts)
