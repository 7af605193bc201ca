"""Evaluators on one input, live and offline.

Each runs in its own execution. Results come in order, and every failure is isolated.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns, thread_time, time_ns
from typing import Any, Final, NamedTuple

from agenteval_otel.capture.redaction.outgoing import Redaction
from agenteval_otel.capture.text import clean
from agenteval_otel.engine.aggregation import Aggregation, WeightedMean, overall_score
from agenteval_otel.engine.answers import corrections, criteria_of, facts_of
from agenteval_otel.engine.execution import Executor
from agenteval_otel.engine.execution.jobs import CHEAP_S, INLINE_SAMPLE, EvaluatorState
from agenteval_otel.errors import ConfigurationError, EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import (
    CriterionEvaluator,
    Evaluates,
    Evaluator,
    Schedule,
    find_criterion,
    result_at_once,
)
from agenteval_otel.evaluators.shadow import asked_criteria, declared_criteria, shadow_results
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, RunError
from agenteval_otel.models.results import (
    LOAD_SHED,
    NO_ANSWER,
    NO_RESULT,
    NOT_ESCALATED,
    no_score_reason,
)
from agenteval_otel.models.scoring.probability import independent, nested
from agenteval_otel.models.value import completed, copy_with
from agenteval_otel.runtime.masking import message_of
from agenteval_otel.sampling.base import threshold_of
from agenteval_otel.sampling.escalation import Escalation, EscalationDecider
from agenteval_otel.sampling.key import FIXED_KEY, SamplingKey
from agenteval_otel.sampling.trace import NOTHING_KNOWN, Upstream
from agenteval_otel.semconv import MAX_CRITERIA_PER_SPAN, wrong_criterion_name

NO_CONVERSATION: Final = "no conversation"
ONE_CONVERSATION: Final = "a whole conversation, and no evaluator of conversations"
_SLOW_NS: Final = 1_000_000
WEIGHTED_MEAN: Final = WeightedMean()


class RunOutcome(NamedTuple):
    """Holds the results in configured order, and the errors.

    `criteria` are those that the input was scored on. `outgoing` is the redacted input if a model
    was called. `broken` has the name and the error of each part that is no evaluator and raised.
    """

    results: list[EvaluationResult]
    errors: list[RunError]
    criteria: Sequence[EvaluationCriteria]
    outgoing: EvaluationInput | None = None
    broken: Sequence[tuple[str, BaseException]] = ()


def combined(
    outcome: RunOutcome,
    aggregation: Aggregation | None = None,
    on_broken: Callable[[str, BaseException], None] = lambda *_: None,
) -> tuple[float | None, list[RunError]]:
    """Return the overall score of a run and its errors.

    If the aggregation raises, the score is None, and the errors have one more.
    """
    strategy = aggregation or WEIGHTED_MEAN
    try:
        return overall_score(outcome.results, outcome.criteria, strategy), outcome.errors
    except (Exception, SystemExit) as error:
        # of a strategy of the user's own: the results are not lost with it
        on_broken(f"aggregation:{strategy.type}", error)
        failed = RunError(evaluator_type=f"aggregation:{strategy.type}", message=message_of(error))
        return None, [*outcome.errors, failed]


class Step(NamedTuple):
    """Holds an evaluator, and what never changes about it."""

    evaluator: Evaluator
    state: EvaluatorState
    names: frozenset[str]
    threshold: int | None  # of an own sampling rate: randomness below it takes the answer
    second: bool  # it belongs to the second stage of an escalation
    calls_model: bool
    scores: CriterionEvaluator | None  # the evaluator, where it is asked for its score directly
    criterion: EvaluationCriteria | None  # what it scores then, of inputs that name no criteria
    shadow: bool


class EvaluationRunner:
    """Runs a list of evaluators on inputs, and gives their results in this order.

    Inputs that name no criteria are scored on `criteria`, else on each evaluator's own. An input of
    a whole conversation goes to the evaluators of conversations, every other to those of answers.
    Where there are none of them, the criteria are skipped. Evaluators that call a model see the
    redacted input. Without an `executor`, one for offline runs is made.
    """

    def __init__(
        self,
        evaluators: Sequence[Evaluator],
        *,
        criteria: Sequence[EvaluationCriteria] = (),
        executor: Executor | None = None,
        redaction: Redaction | None = None,
        escalation: Escalation | None = None,
        key: SamplingKey = FIXED_KEY,
    ) -> None:
        self.redaction = redaction
        self.escalation = escalation
        self.key = key
        self.evaluators = tuple(evaluators)
        _check_derived_names(self.evaluators)
        self.has_shadows = any(evaluator.shadow for evaluator in self.evaluators)
        self.criteria = tuple(criteria) or own_criteria(self.evaluators)
        self.criteria_by_shadow: tuple[Sequence[EvaluationCriteria], ...] = (self.criteria, ())
        """The criteria of regular evaluators, then those of shadow evaluators."""
        if self.has_shadows:
            self.criteria_by_shadow = asked_criteria(self.criteria)
        self.executor = executor or Executor(live=False)
        self.steps = tuple(_step(self, evaluator) for evaluator in self.evaluators)
        self.of_answers = tuple(step for step in self.steps if step.evaluator.evaluates == "answer")
        self.of_conversations = tuple(
            step for step in self.steps if step.evaluator.evaluates == "conversation"
        )
        self.schedules: dict[Schedule, set[Evaluates]] = {}
        """What is evaluated by those that do not run at once, by their schedule."""
        for evaluator in self.evaluators:
            if evaluator.schedule != "immediate":
                self.schedules.setdefault(evaluator.schedule, set()).add(evaluator.evaluates)
        self.has_stages = any(step.second for step in self.steps)
        self.watched: dict[int, int] = {}
        """Positions of evaluators whose CPU time is measured, with the number of evaluations that still are."""
        self.undeclared: set[str] = set()
        """The criteria that were answered without being declared or asked for."""
        self.thins_itself = any(step.threshold is not None for step in self.steps)
        # Computed at start, so that errors are raised here and not with each answer. A fork while
        # pydantic does this for the first time would leave a lock in the child that is never
        # released.
        self.labels = tuple(evaluator.label for evaluator in self.evaluators)
        self._fingerprints = tuple(evaluator.fingerprint for evaluator in self.evaluators)

    def __repr__(self) -> str:
        return f"<EvaluationRunner {', '.join(self.labels)}>"

    def admit(self, names: set[str], criteria: Sequence[EvaluationCriteria]) -> None:
        """Bound the criteria of evaluators that declare none.

        In telemetry each criterion becomes attributes and series. Raise EvaluationError if there
        are too many, or if a name cannot be one of a criterion. Offline there is no bound.
        """
        new: set[str] = set()
        if self.executor.is_live:
            new = names - {criterion.name for criterion in criteria} - self.undeclared
        if len(self.undeclared) + len(new) > MAX_CRITERIA_PER_SPAN:
            wrong = f"results for more than {MAX_CRITERIA_PER_SPAN} criteria that are neither declared nor asked for"
            raise EvaluationError(wrong, error_type="invalid_result")
        for name in new:
            wrong_name = wrong_criterion_name(name)
            if wrong_name is not None:
                raise EvaluationError(
                    f"the criterion of a result {wrong_name}", error_type="invalid_result"
                )
        self.undeclared |= new

    async def run(
        self,
        evaluation_input: EvaluationInput,
        *,
        randomness: int | None = None,
        probability: float | None = None,
        upstream: Upstream = NOTHING_KNOWN,
        skip_models: bool = False,
    ) -> RunOutcome:
        """Evaluate one input on the running event loop. Raises nothing that an evaluator raised.

        See `Run`.
        """
        finished: asyncio.Future[RunOutcome] = asyncio.get_running_loop().create_future()

        def done(outcome: RunOutcome) -> None:
            if not finished.done():
                finished.set_result(outcome)

        run = Run(
            self,
            evaluation_input,
            done,
            randomness=randomness,
            probability=probability,
            upstream=upstream,
            skip_models=skip_models,
        )
        try:
            run.start()
            return await finished
        finally:
            run.cancel()


class Run:
    """Takes one input through the evaluators. Everything happens on the thread that starts it.

    `done` is called once, with the outcome: within `start` if every evaluator runs inline.
    `probability` is the one among the responses of this process. With `skip_models`, criteria that
    ask a model are skipped (``load_shed``). With `only`, just evaluators with these labels run,
    without escalation, which was decided before. With a `schedule`, just evaluators with that
    schedule run.
    """

    __slots__ = (
        "_broken",
        "_cancels",
        "_decider",
        "_decision",
        "_done",
        "_due",
        "_facts_of_all",
        "_groups",
        "_has_own_criteria",
        "_is_unanswered",
        "_only",
        "_outgoing",
        "_probability",
        "_randomness",
        "_schedule",
        "_shadowed",
        "_skip_models",
        "_upstream",
        "_waiting",
        "_wrong_input",
        "at",
        "criteria",
        "evaluation_input",
        "runner",
        "superseded",
    )

    def __init__(
        self,
        runner: EvaluationRunner,
        evaluation_input: EvaluationInput,
        done: Callable[[RunOutcome], None],
        randomness: int | None = None,
        probability: float | None = None,
        upstream: Upstream = NOTHING_KNOWN,
        skip_models: bool = False,
        only: frozenset[str] | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self.runner = runner
        self.evaluation_input = evaluation_input
        self._only = only
        self._done: Callable[[RunOutcome], None] | None = done
        self._randomness = randomness
        self._probability = probability
        self._skip_models = skip_models
        self._upstream = upstream
        self._schedule = schedule
        self._facts_of_all = self._sampling_facts(None)
        criteria = evaluation_input.criteria
        self._has_own_criteria = bool(criteria) and criteria is not runner.criteria
        if not self._has_own_criteria:
            self.criteria, self._shadowed = runner.criteria_by_shadow
        elif runner.has_shadows:
            self.criteria, self._shadowed = asked_criteria(criteria)
        else:
            self.criteria = criteria
            self._shadowed = ()
        self._is_unanswered = (
            evaluation_input.error_type is not None and not evaluation_input.response_text
        )
        is_whole = evaluation_input.conversation is not None
        steps = runner.of_conversations if is_whole else runner.of_answers
        if steps:
            self._wrong_input: str | None = None
        elif is_whole:
            self._wrong_input = ONE_CONVERSATION
        else:
            self._wrong_input = NO_CONVERSATION
        self._due = steps or runner.steps
        if schedule is not None:
            self._due = tuple(step for step in self._due if step.evaluator.schedule == schedule)
        if runner.thins_itself and randomness is not None:
            self._due = tuple(
                step for step in self._due if step.threshold is None or randomness < step.threshold
            )
        if only is not None:
            self._due = tuple(step for step in self._due if step.evaluator.label in only)
        # The results of each evaluator that is due, at its position. None: they are not there yet.
        self._groups: list[list[EvaluationResult] | None] = [None] * len(self._due)
        self._cancels: dict[int, Callable[[], None]] = {}  # of those that run elsewhere
        self._decider: EscalationDecider | None = None  # until the second stage is decided
        self._decision: Any = None
        self._outgoing: EvaluationInput | None = None
        self._broken: Sequence[tuple[str, BaseException]] = ()
        self._waiting = 0  # how many answers are still to come from elsewhere
        self.at = -1  # position of the evaluator that runs inline at this moment
        self.superseded = False  # another thread took over: later answers are ignored

    def start(self) -> None:
        self._waiting += 1  # so that the run cannot end before all have begun
        reason = self._wrong_input
        if reason is not None:
            self._groups = [
                self._unscored(step, skip_reason=reason, **self._facts(step)) for step in self._due
            ]
        if self.runner.has_stages and self._only is None:
            self._begin_first_stage()
        else:
            for index in range(len(self._due)):
                if self._groups[index] is None:
                    self._begin(index)
        self._note_answered()

    @property
    def takes_time(self) -> bool:
        """Tell whether an evaluator that is due asks a model, or runs on another thread or process."""
        return any(
            (step.calls_model and not self._skip_models) or step.state.mode != "inline"
            for step in self._due
        )

    def cancel(self) -> None:
        self.superseded = True
        cancels = self._cancels
        self._cancels = {}
        for cancel in cancels.values():
            cancel()

    def present(self) -> Evaluator | None:
        """Return the evaluator that runs inline at this moment. Any thread may ask."""
        return self._due[self.at].evaluator if self.at >= 0 else None

    def taken_over(
        self, blamed: Evaluator | None, error: EvaluationError, done: Callable[[RunOutcome], None]
    ) -> Run:
        """Return the same run for another thread.

        What has finished is kept, `blamed` has failed, and the rest begins anew.
        """
        self.cancel()  # or what it started elsewhere would count as waiting for good
        other = Run(
            self.runner,
            self.evaluation_input,
            done,
            randomness=self._randomness,
            probability=self._probability,
            upstream=self._upstream,
            skip_models=self._skip_models,
            only=self._only,
            schedule=self._schedule,
        )
        other._outgoing = self._outgoing
        for index, step in enumerate(self._due):
            other._groups[index] = self._groups[index]
            if step.evaluator is blamed and other._groups[index] is None:
                other._groups[index] = self._failed(step, error, time_ns(), perf_counter_ns())
        return other

    def _begin(self, index: int) -> None:
        """Start one evaluator. Inline its results are there at the end, unless it has to wait."""
        if self.superseded:  # by a run that begins it too
            return
        step = self._due[index]
        evaluator = step.evaluator
        executor = self.runner.executor
        started_ns = time_ns()
        tick = perf_counter_ns()  # of the same moment: the wall clock may step
        try:
            if self._skip_models and step.calls_model:
                raise EvaluationSkipped(LOAD_SHED)
            if self._is_unanswered and not evaluator.evaluates_errors:
                raise EvaluationSkipped(NO_ANSWER)
            if step.state.mode == "inline":
                self.at = index
                raw = self._measured(step) if index in self.runner.watched else self._inline(step)
                self.at = -1
                if raw is not None:
                    if self.superseded:
                        return
                    took_ns = perf_counter_ns() - tick
                    ended_ns = started_ns + took_ns
                    self._groups[index] = self._checked(step, raw, started_ns, ended_ns)
                    # it may have waited for the interpreter: measured from now
                    if took_ns > _SLOW_NS:
                        self.runner.watched[index] = INLINE_SAMPLE
                    return
            seen = self._redacted() if step.calls_model else self.evaluation_input
            self._waiting += 1
            arrived = partial(self._arrived, index, started_ns, tick)
            self._cancels[index] = executor.start(
                evaluator, seen, self._criteria_for(step), arrived
            )
        except BaseException as error:
            self.at = -1
            if (
                isinstance(error, KeyboardInterrupt)
                and threading.current_thread() is threading.main_thread()
            ):
                raise  # the user's interrupt, which arrives there alone
            self._groups[index] = self._failed(step, error, started_ns, tick)

    def _measured(self, step: Step) -> Any:
        """Run `_inline` and measure its CPU time, for a while after an evaluation took long."""
        watched = self.runner.watched
        index = self.at
        began = thread_time()
        try:
            return self._inline(step)
        finally:
            cpu_s = thread_time() - began
            watched[index] -= 1
            if watched[index] <= 0:
                del watched[index]
            if cpu_s >= CHEAP_S or index not in watched:
                step.state.ran_inline(cpu_s)

    def _inline(self, step: Step) -> Any:
        """Return what an inline evaluator gives, a score as a result.

        Return None if it has to wait: then it runs elsewhere.
        """
        if step.scores is not None:
            criterion = step.criterion
            if self._has_own_criteria:
                criterion = find_criterion(self._criteria_for(step), step.scores.criterion_name)
            if criterion is None:
                return []
            return result_at_once(step.scores, self.evaluation_input, criterion)
        work = step.evaluator.evaluate(self.evaluation_input, self._criteria_for(step))
        # A coroutine that waits for nothing ends with its first step: no event loop is needed.
        try:
            work.send(None)
        except StopIteration as end:
            return end.value
        work.close()
        return None

    def _arrived(self, index: int, started_ns: int, tick: int, answer: object) -> None:
        if self.superseded:
            return
        self._cancels.pop(index, None)
        step = self._due[index]
        if isinstance(answer, BaseException):
            self._groups[index] = self._failed(step, answer, started_ns, tick)
        else:
            try:
                ended_ns = started_ns + perf_counter_ns() - tick
                self._groups[index] = self._checked(step, answer, started_ns, ended_ns)
            except Exception as error:
                self._groups[index] = self._failed(step, error, started_ns, tick)
        self._note_answered()

    def _note_answered(self) -> None:
        """Count down. After the last answer, begin the second stage or give the outcome."""
        self._waiting -= 1
        if self._waiting or self.superseded:
            return
        if self._decider is not None:
            decider = self._decider
            self._decider = None
            self._waiting += 1  # so that the run cannot end before the stage has begun
            self._begin_second_stage(decider)
            self._note_answered()
            return
        # The run lets go of `done`, which refers to the run: without that cycle both are freed at
        # once, without the garbage collector.
        done = self._done
        self._done = None
        if done is not None:
            done(self._outcome())

    def _begin_first_stage(self) -> None:
        assert self.runner.escalation is not None
        self._decider = EscalationDecider(
            self.runner.escalation, self.evaluation_input, self._randomness, self.runner.key
        )
        self._decision = self._decider.decide()
        for index, step in enumerate(self._due):
            # If the answer is sampled whatever the first stage gives, the second need not wait.
            if self._groups[index] is None and (self._decision.sampled or not step.second):
                self._begin(index)

    def _begin_second_stage(self, decider: EscalationDecider) -> None:
        if not self._decision.settled:
            first: list[EvaluationResult] = []
            for step, group in zip(self._due, self._groups, strict=True):
                if group is not None and not step.second and not step.shadow:
                    first.extend(group)
            self._decision = decider.decide(first)
        self._broken = [(f"escalation:{rule}", error) for rule, error in decider.broken]
        for index, step in enumerate(self._due):
            if step.second and self._groups[index] is None:
                if self._decision.sampled:
                    self._begin(index)
                else:
                    load_shed = self._skip_models and step.calls_model
                    why = LOAD_SHED if load_shed else NOT_ESCALATED
                    self._groups[index] = self._unscored(step, skip_reason=why, **self._facts(step))

    def _outcome(self) -> RunOutcome:
        results: list[EvaluationResult] = []
        errors: list[RunError] = []
        for step, group in zip(self._due, self._groups, strict=True):
            raised: EvaluationResult | None = None
            for result in group or ():
                if raised is None and result.raised:
                    raised = result
                if self._decision is not None and step.second:
                    probability = independent(result.probability, self._decision.probability)
                    changes = {"probability": probability, "sampling_reason": self._decision.reason}
                    result = copy_with(result, changes)
                results.append(result)
            if raised is not None:
                message = raised.error or ""
                errors.append(RunError(evaluator_type=step.evaluator.label, message=message))
        for part, error in self._broken:
            errors.append(RunError(evaluator_type=part, message=message_of(error)))
        criteria = self.evaluation_input.criteria or self.runner.criteria
        return RunOutcome(results, errors, criteria, self._outgoing, self._broken)

    def _criteria_for(self, step: Step) -> Sequence[EvaluationCriteria]:
        return self._shadowed if step.shadow else self.criteria

    def _unscored(self, step: Step, **facts: Any) -> list[EvaluationResult]:
        results = _results_without_score(step, self._criteria_for(step), **facts)
        return self._as_emitted(step, results)

    def _as_emitted(self, step: Step, results: list[EvaluationResult]) -> list[EvaluationResult]:
        """Return the results, those of a shadow evaluator under the names of shadows."""
        return shadow_results(results) if step.shadow else results

    def _checked(
        self, step: Step, raw: Any, started_ns: int, ended_ns: int
    ) -> list[EvaluationResult]:
        facts = self._facts(step)
        criteria = self._criteria_for(step)
        facts["started_ns"] = started_ns
        facts["ended_ns"] = ended_ns
        if step.scores is not None and isinstance(raw, EvaluationResult):  # made here, by `_inline`
            return self._as_emitted(step, [completed(raw, facts | corrections(raw, criteria))])
        answered = criteria_of(step.evaluator, step.names, raw)
        if not step.names:
            self.runner.admit(answered, criteria)
            if not raw:
                return self._unscored(step, skip_reason=NO_RESULT, **facts)
        group = [
            copy_with(result, facts_of(result, facts) | corrections(result, criteria))
            for result in raw
        ]
        if step.names and answered != step.names:
            # So that every criterion that was asked for is accounted for.
            rest = _results_without_score(step, criteria, skip_reason=NO_RESULT, **facts)
            group += [result for result in rest if result.criterion_name not in answered]
        return self._as_emitted(step, group)

    def _failed(
        self, step: Step, error: BaseException, started_ns: int, tick: int
    ) -> list[EvaluationResult]:
        facts = self._facts(step)
        facts["started_ns"] = started_ns
        facts["ended_ns"] = started_ns + perf_counter_ns() - tick
        if isinstance(error, EvaluationSkipped):
            return self._unscored(step, skip_reason=str(error) or "skipped", **facts)
        return self._unscored(
            step, error=message_of(error), error_type=_error_type(error), raised=True, **facts
        )

    def _facts(self, step: Step) -> dict[str, Any]:
        """Return the fields that the run sets in each result of an evaluator."""
        if step.threshold is None:
            return self._facts_of_all.copy()
        return self._sampling_facts(step.evaluator.sample_rate)

    def _sampling_facts(self, own_rate: float | None) -> dict[str, Any]:
        if self._probability is None:
            return {"sampling_reason": None}
        probability: float | None = self._probability
        if own_rate is not None:
            probability = nested(self._probability, own_rate)
        return {"sampling_reason": None, "probability": self._upstream.applied(probability)}

    def _redacted(self) -> EvaluationInput:
        if self.runner.redaction is None:
            return self.evaluation_input
        if self._outgoing is None:
            self._outgoing = self.runner.redaction.input(self.evaluation_input)
        return self._outgoing


def _step(runner: EvaluationRunner, evaluator: Evaluator) -> Step:
    escalation = runner.escalation
    scores = None
    if (
        isinstance(evaluator, CriterionEvaluator)
        and type(evaluator).evaluate is CriterionEvaluator.evaluate
    ):
        scores = evaluator
    criterion = None
    if scores is not None:
        own_criteria_of = runner.criteria_by_shadow[evaluator.shadow]
        criterion = find_criterion(own_criteria_of, scores.criterion_name)
    state = runner.executor.state(evaluator)
    names = frozenset(criterion.name for criterion in evaluator.criteria())
    threshold = None
    if evaluator.sample_rate is not None:
        threshold = threshold_of(evaluator.sample_rate)
    is_second = escalation is not None and waits(evaluator, escalation)
    return Step(
        evaluator=evaluator,
        state=state,
        names=names,
        threshold=threshold,
        second=is_second,
        calls_model=evaluator.calls_model,
        scores=scores,
        criterion=criterion,
        shadow=evaluator.shadow,
    )


def own_criteria(evaluators: Sequence[Evaluator]) -> tuple[EvaluationCriteria, ...]:
    """Return the criteria that the evaluators declare, the first of each name."""
    by_name: dict[str, EvaluationCriteria] = {}
    for evaluator in evaluators:
        for criterion in declared_criteria(evaluator):
            by_name.setdefault(criterion.name, criterion)
    return tuple(by_name.values())


def _check_derived_names(evaluators: Sequence[Evaluator]) -> None:
    """Refuse a criterion's name that was made of words if an evaluator without them has it too."""
    words: dict[str, set[str | None]] = {}
    for evaluator in evaluators:
        for criterion in declared_criteria(evaluator):
            words.setdefault(criterion.name, set()).add(evaluator.derived_from)
    for name, derived_from in words.items():
        if len(derived_from) > 1:
            wrong = f"the criterion name {name!r} comes from an evaluator's text, and another evaluator has it"
            raise ConfigurationError(f"{wrong}: give one of them criterion_name", path="evaluators")


def _results_without_score(
    step: Step, criteria: Sequence[EvaluationCriteria], **facts: Any
) -> list[EvaluationResult]:
    """Return one result without a score for each criterion of the evaluator that was asked for.

    An evaluator that declares no criteria has a single result, under its type: which criteria it
    would have answered is unknown.
    """
    skip_reason = facts.get("skip_reason")
    if skip_reason is not None:
        facts["reason_code"] = no_score_reason(skip_reason)
    if step.names:
        asked_for = {criterion.name for criterion in criteria}
        declared = [criterion.name for criterion in step.evaluator.criteria()]
        names = [name for name in declared if name in asked_for]
    else:
        names = [step.evaluator.type]
    return [
        EvaluationResult(criterion_name=name, **step.evaluator.signature, **facts) for name in names
    ]


def _error_type(error: BaseException) -> str:
    error_type: object = None
    if isinstance(error, EvaluationError):
        error_type = getattr(error, "error_type", None)
    if not isinstance(error_type, str):
        error_type = type(error).__name__
    return clean(error_type, 64)


def waits(evaluator: Evaluator, escalation: Escalation) -> bool:
    """Tell whether the evaluator belongs to the second stage.

    It does if it scores a criterion that is named, or, if none is named, asks a model.
    """
    if not escalation.criteria:
        return evaluator.calls_model
    return any(criterion.name in escalation.criteria for criterion in evaluator.criteria())
