"""The runner: evaluators side by side, results in configured order, every failure isolated.

`EvaluationRunner` is what the pipeline runs on live answers; `run_evaluation` is the same runner without sampler and
dispatcher, so offline and online scores cannot differ.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from agenteval_otel.capture.outgoing import Redaction
from agenteval_otel.capture.text import clean
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.execution import Executor
from agenteval_otel.masking import message_of
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, RunError
from agenteval_otel.models.value import replaced
from agenteval_otel.runner.answers import corrections, criteria_of
from agenteval_otel.runner.stages import NOT_ESCALATED, escalated, facts_of, waits
from agenteval_otel.sampling.base import bound_of
from agenteval_otel.sampling.escalation import Escalation, Question

__all__ = ["EvaluationRunner", "RunOutcome"]

STEPPED_DOWN = "stepped_down"


class RunOutcome(NamedTuple):
    """What a run gave: results in configured order, who raised, and the redacted input, where a model was asked.

    Attributes:
        broken: What else raised (a rule of the escalation), by its name; among the errors too.
    """

    results: list[EvaluationResult]
    errors: list[RunError]
    criteria: Sequence[EvaluationCriteria]
    outgoing: EvaluationInput | None = None
    broken: Sequence[tuple[str, BaseException]] = ()


class EvaluationRunner:
    """Runs a list of evaluators on inputs, each where it runs.

    Args:
        evaluators: In the order of the results.
        criteria: Asked for when the input names none; else each evaluator's own.
        redaction: What evaluators that ask a model see has passed it; the others see the input as it is.
        escalation: Decides, after the other evaluators, which inputs those of the second stage see.
    """

    def __init__(
        self,
        evaluators: Sequence[Evaluator],
        *,
        criteria: Sequence[EvaluationCriteria] = (),
        executor: Executor | None = None,
        redaction: Redaction | None = None,
        escalation: Escalation | None = None,
    ) -> None:
        self.redaction, self.escalation = redaction, escalation
        self.evaluators = tuple(evaluators)
        self.criteria = tuple(criteria) or _own_criteria(self.evaluators)
        self.executor = executor or Executor(live=False)
        self._plan = [_planned(evaluator, escalation) for evaluator in self.evaluators]
        self._has_stages = any(planned.waits for planned in self._plan)
        # At start: one that cannot be made fails here and not with each answer, and a process that forks while pydantic
        # does this for the first time leaves its child with a lock that nobody opens.
        self.labels = tuple(evaluator.label for evaluator in self.evaluators)
        self._fingerprints = tuple(evaluator.fingerprint for evaluator in self.evaluators)

    def __repr__(self) -> str:
        return f"<EvaluationRunner {', '.join(self.labels)}>"

    async def run(
        self,
        evaluation_input: EvaluationInput,
        *,
        draw: int | None = None,
        probability: float | None = None,
        code_only: bool = False,
    ) -> RunOutcome:
        """Evaluate one input; raises nothing that an evaluator raised.

        Args:
            evaluation_input: What to score.
            draw: The response's draw; evaluators with a smaller own rate sit out when it lies above theirs.
            probability: Inclusion probability of the response, recorded on every result.
            code_only: Evaluators that ask a model sit out, each of their criteria skipped as ``stepped_down``.
        """
        criteria = evaluation_input.criteria or self.criteria
        due = [planned for planned in self._plan if draw is None or planned.bound is None or draw < planned.bound]
        work = _Work(evaluation_input, criteria, probability, code_only)
        if not self._has_stages:
            finished = await self._side_by_side(due, work)
        else:
            finished = await self._in_stages(due, work, draw)
        results = [result for group in finished for result in group]
        errors = [
            RunError(evaluator_type=planned.evaluator.label, message=raised.error or "")
            for planned, group in zip(due, finished, strict=True)
            if (raised := next((result for result in group if result.raised), None)) is not None
        ]  # fmt: skip
        errors += [RunError(evaluator_type=part, message=message_of(error)) for part, error in work.broken]
        return RunOutcome(results, errors, criteria, work.outgoing, work.broken)

    async def _in_stages(self, due: list[_Planned], work: _Work, draw: int | None) -> list[list[EvaluationResult]]:
        """Those that wait only see the input if the escalation says so; what they give has its probability."""
        assert self.escalation is not None
        question = Question(self.escalation, work.evaluation_input, draw)
        decision = question.decide()
        if decision.sampled:  # whatever the first ones find: then nobody has to wait for them
            finished = await self._side_by_side(due, work)
            found = dict(zip(map(id, due), finished, strict=True))
        else:
            first = [planned for planned in due if not planned.waits]
            found = dict(zip(map(id, first), await self._side_by_side(first, work), strict=True))
        if not decision.settled:
            given = [result for planned in due if not planned.waits for result in found[id(planned)]]
            decision = question.decide(given)
        second = [planned for planned in due if planned.waits and id(planned) not in found]
        if decision.sampled:
            found |= zip(map(id, second), await self._side_by_side(second, work), strict=True)
        else:
            found |= {id(planned): self._passed_over(planned, work) for planned in second}
        for planned in due:
            if planned.waits:
                found[id(planned)] = [escalated(result, decision) for result in found[id(planned)]]
        work.broken = [(f"escalation:{rule}", error) for rule, error in question.broken]
        return [found[id(planned)] for planned in due]

    async def _side_by_side(self, due: Sequence[_Planned], work: _Work) -> list[list[EvaluationResult]]:
        """What each evaluator gives; those that take long begin at once, the others run in between."""
        given = work.evaluation_input
        asked = [self._one(planned, self._outgoing(work) if planned.calls_model else given, work) for planned in due]
        slow = {
            index: asyncio.ensure_future(asked[index])
            for index, planned in enumerate(due) if self.executor.mode(planned.evaluator) != "inline"
        }  # fmt: skip
        finished: list[list[EvaluationResult]] = []
        try:
            for index, one in enumerate(asked):
                finished.append(await slow.get(index, one))
        finally:
            for task in slow.values():
                task.cancel()
            for index in range(len(finished), len(asked)):
                if index not in slow:
                    asked[index].close()  # a cancelled run leaves no coroutine behind that nobody awaited
        return finished

    def _outgoing(self, work: _Work) -> EvaluationInput:
        """What evaluators that ask a model see: redacted once, and only where one is asked."""
        if self.redaction is None or work.code_only:
            return work.evaluation_input
        if work.outgoing is None:
            work.outgoing = self.redaction.input(work.evaluation_input)
        return work.outgoing

    async def _one(self, planned: _Planned, evaluation_input: EvaluationInput, work: _Work) -> list[EvaluationResult]:
        started_ns, tick = time.time_ns(), time.perf_counter_ns()
        evaluator, criteria = planned.evaluator, work.criteria
        changes: list[dict[str, Any]] = []
        try:
            if work.code_only and planned.calls_model:
                raise EvaluationSkipped(STEPPED_DOWN)
            if _unanswered(evaluation_input) and not evaluator.evaluates_errors:
                raise EvaluationSkipped("no answer: the handler raised")
            results = await self.executor.run(evaluator, evaluation_input, criteria)
            found = criteria_of(evaluator, planned.names, results)
            changes = [corrections(result, criteria) for result in results]
            results = [*results, *_without_result(planned, criteria, found)]
        except EvaluationSkipped as skipped:
            results = _for_each(planned, criteria, skip_reason=str(skipped) or "skipped")
        except BaseException as error:
            if _is_an_order(error):
                raise
            word = _word_of(error)
            results = _for_each(planned, criteria, error=message_of(error), error_type=word, raised=True)
        facts = _facts(planned, work.probability)
        facts["started_ns"], facts["ended_ns"] = started_ns, started_ns + time.perf_counter_ns() - tick
        # Only what the evaluator itself gave may have to be changed; it stands in front.
        changes += [{}] * (len(results) - len(changes))
        return [
            replaced(result, facts_of(result, facts) | wrong)
            for result, wrong in zip(results, changes, strict=True)
        ]  # fmt: skip

    def _passed_over(self, planned: _Planned, work: _Work) -> list[EvaluationResult]:
        facts = _facts(planned, work.probability)
        asks_in_vain = work.code_only and planned.calls_model
        return _for_each(planned, work.criteria, skip_reason=STEPPED_DOWN if asks_in_vain else NOT_ESCALATED, **facts)


def _is_an_order(error: BaseException) -> bool:
    """Whether it is meant for the run, not raised by the evaluator: cancelled, closed, interrupted by the user."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    if isinstance(error, KeyboardInterrupt):
        return threading.current_thread() is threading.main_thread()  # only there does an interrupt arrive
    return isinstance(error, GeneratorExit)


class _Planned(NamedTuple):
    """An evaluator, and what never changes about it: computed once instead of for each answer."""

    evaluator: Evaluator
    calls_model: bool
    bound: int | None
    names: frozenset[str]
    waits: bool


class _Work:
    """One run: what every evaluator of it is told, the redacted input once a model was asked, and what broke."""

    __slots__ = ("broken", "code_only", "criteria", "evaluation_input", "outgoing", "probability")

    def __init__(
        self,
        evaluation_input: EvaluationInput,
        criteria: Sequence[EvaluationCriteria],
        probability: float | None,
        code_only: bool,
    ) -> None:
        self.evaluation_input, self.criteria = evaluation_input, criteria
        self.probability, self.code_only = probability, code_only
        self.outgoing: EvaluationInput | None = None
        self.broken: Sequence[tuple[str, BaseException]] = ()


def _planned(evaluator: Evaluator, escalation: Escalation | None) -> _Planned:
    bound = None if evaluator.sample_rate is None else bound_of(evaluator.sample_rate)
    names = frozenset(criterion.name for criterion in evaluator.criteria())
    is_second = escalation is not None and waits(evaluator, escalation)
    return _Planned(evaluator, evaluator.calls_model, bound, names, is_second)


def _facts(planned: _Planned, probability: float | None) -> dict[str, Any]:
    """What the runner says of every result; a reason is never the evaluator's to give."""
    own = planned.evaluator.sample_rate
    if probability is None:
        return {"sampling_reason": None}
    # The draws nest: who passed the smaller of the two ratios passed both.
    return {"sampling_reason": None, "probability": probability if own is None else min(probability, own)}


def _own_criteria(evaluators: Sequence[Evaluator]) -> tuple[EvaluationCriteria, ...]:
    by_name: dict[str, EvaluationCriteria] = {}
    for evaluator in evaluators:
        for criterion in evaluator.criteria():
            by_name.setdefault(criterion.name, criterion)
    return tuple(by_name.values())


def _unanswered(evaluation_input: EvaluationInput) -> bool:
    return evaluation_input.error_type is not None and not evaluation_input.response_text


def _without_result(
    planned: _Planned, criteria: Sequence[EvaluationCriteria], found: set[str]
) -> list[EvaluationResult]:
    """Skips for the criteria that were asked for and not answered, so that every one is accounted for."""
    if found == planned.names:
        return []
    return [
        result for result in _for_each(planned, criteria, skip_reason="no result")
        if result.criterion_name not in found
    ]  # fmt: skip


def _for_each(planned: _Planned, criteria: Sequence[EvaluationCriteria], **facts: Any) -> list[EvaluationResult]:
    """One result without a score for each criterion of the evaluator that was asked for."""
    evaluator = planned.evaluator
    asked = {criterion.name for criterion in criteria}
    return [
        EvaluationResult(
            criterion_name=criterion.name, evaluator_type=evaluator.type, evaluator_id=evaluator.evaluator_id,
            evaluator_version=evaluator.fingerprint, evaluator_kind=evaluator.kind,
            calls_model=planned.calls_model, **facts,
        )
        for criterion in evaluator.criteria() if criterion.name in asked
    ]  # fmt: skip


def _word_of(error: BaseException) -> str:
    word = getattr(error, "error_type", None) if isinstance(error, EvaluationError) else None
    return clean(word if isinstance(word, str) else type(error).__name__, 64)
